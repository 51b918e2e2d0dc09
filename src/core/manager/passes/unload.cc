#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"

namespace heddle::core::manager {
namespace {

/// One instance of a model that is to be unloaded.
void unload_instance(const Parts& core,
                     const DeviceState& device,
                     ModelId id,
                     const ModelState& model) {
  const Instance& instance = device.instances.at(id);
  const DeviceId device_id = device.config.id;
  const EvictionReason why =
      model.removed ? EvictionReason::kRemoved : model.unloads_asked.begin()->second;
  // Whatever an external engine still holds, an operator wants back; one that is merely idle gives
  // up what it can cheaply.
  const bool ends = why != EvictionReason::kIdle;
  const std::int64_t free = ends ? INT64_MAX : pages_of(core.state, device, id) / 2;
  if (instance.is<Suspended>()) {
    if (ends && (instance.in_flight.empty() || model.removed)) {
      core.residency.evict(device_id, id, EvictMode::kNow, why, {}, free);
    }
  } else if (instance.is<Loading>()) {
    core.residency.evict(device_id, id, EvictMode::kNow, why, {}, free);
  } else if (!instance.is<Evicting>() && !instance.is<SteppingBack>()) {
    core.residency.drain(device_id, id);
    if (instance.in_flight.empty()) {
      core.residency.evict(device_id, id, EvictMode::kWhenIdle, why, {}, free);
    }
  }
}

/// Where anything is of the models that go.
std::set<DeviceId> devices_of_going(const State& state) {
  std::set<DeviceId> devices;
  const auto add = [&](ModelId id) {
    const auto found = state.models.find(id);
    if (found != state.models.end()) {
      for (const Spot& spot : found->second.spots) {
        devices.insert(spot.id);
      }
    }
  };
  for (const ModelId id : state.index.going) {
    for (const ModelId form : forms(state.models.at(id))) {
      add(form);
      const ModelState& model = state.models.at(form);
      if (model.sharded()) {
        std::ranges::for_each(shards_of(model), add);
      }
    }
  }
  return devices;
}

}  // namespace

/// A model that is not configured any more takes no requests, not even back from a worker that
/// died.
void unload(const Parts& core) {
  const State& state = core.state;
  if (state.index.going.empty()) {
    return;
  }
  each(state.index.going, [&](ModelId id) {
    const ModelState& model = state.models.at(id);
    if (model.removed) {
      core.attempts.give_up(id,
                            {Code::kNotFound,
                             "model '" + model.config.name +
                                 "' was removed from the configuration while the request waited "
                                 "for it"});
    }
  });
  for (const DeviceId device_id : devices_of_going(state)) {
    const DeviceState& device = state.devices.at(device_id);
    for (const auto& [id, instance] : device.instances) {
      const ModelState& own = state.models.at(whole(state, id));
      const ModelState& model = own.removed ? own : state.models.at(asked(state, id));
      const bool follows = instance.part().leader && !instance.staged();
      if ((model.removed || !model.unloads_asked.empty()) && !follows) {
        unload_instance(core, device, id, model);
      }
    }
  }
}

namespace {

/// How much speaks for keeping an engine where it is: it serves, with as many requests as possible.
std::pair<int, std::size_t> weight(const Instance& instance) {
  const int stage = instance.is<Serving>()    ? 3
                    : instance.is<Loading>()  ? 2
                    : instance.is<Draining>() ? 1
                                              : 0;
  return {stage, instance.in_flight.size()};
}

/// What an instance of the engine holds is given back whole. It stands by for nobody.
void end_double(const Parts& core, DeviceId device, ModelId model) {
  const DeviceState& there = core.state.devices.at(device);
  const Instance& instance = there.instances.at(model);
  if (there.plan && there.plan->model == model) {
    core.plans.cancel(device);
  }
  const auto end = [&](EvictMode mode) {
    core.residency.evict(device, model, mode, EvictionReason::kMoved, {}, INT64_MAX);
  };
  if (!instance.runs()) {
    end(EvictMode::kNow);
    return;
  }
  core.residency.drain(device, model);
  if (instance.in_flight.empty()) {
    end(EvictMode::kWhenIdle);
  }
}

}  // namespace

void unload_doubles(const Parts& core) {
  each(core.state.index.doubled, [&](ModelId id) {
    std::vector<DeviceId> places;
    for (const Spot& spot : core.state.models.at(id).spots) {
      if (!spot.instance->is<Evicting>() && !spot.instance->part().leader) {
        places.push_back(spot.id);
      }
    }
    const auto at = [&](DeviceId place) -> const Instance& {
      return core.state.devices.at(place).instances.at(id);
    };
    const auto kept =
        std::ranges::max_element(places, {}, [&](DeviceId place) { return weight(at(place)); });
    for (const DeviceId place : places) {
      if (place != *kept) {
        end_double(core, place, id);
      }
    }
  });
}

namespace {

/// What may be too cramped for a request: where its model serves, and what drains.
std::set<std::pair<DeviceId, ModelId>> perhaps_cramped(const State& state) {
  std::set<std::pair<DeviceId, ModelId>> spots;
  for (const auto& [device, model] : state.index.watched) {
    const Draining* draining = state.devices.at(device).instances.at(model).as<Draining>();
    if (draining != nullptr && draining->cramped) {
      spots.emplace(device, model);
    }
  }
  for (const ModelId id : state.index.sendable) {
    for (const ModelId form : forms(state.models.at(id))) {
      for (const Spot& spot : state.models.at(form).spots) {
        spots.emplace(spot.id, form);
      }
    }
  }
  return spots;
}

}  // namespace

void unload_cramped(const Parts& core) {
  const State& state = core.state;
  for (const auto& [device_id, id] : perhaps_cramped(state)) {
    const Instance& instance = state.devices.at(device_id).instances.at(id);
    const bool follows = instance.part().leader && !instance.staged();
    const Draining* draining = instance.as<Draining>();
    if (follows || !(instance.is<Serving>() || (draining != nullptr && draining->cramped))) {
      continue;
    }
    const std::int64_t longest = longest_waiting(state, state.models.at(asked(state, id)));
    const bool cramped = longest > 0 && longest > tokens_max(state, id, device_id);
    if (!cramped) {
      if (draining != nullptr) {
        core.residency.resume(device_id, id);
      }
      continue;
    }
    core.residency.drain(device_id, id, true);
    if (idle(state, instance)) {
      core.residency.evict(device_id, id, EvictMode::kWhenIdle, EvictionReason::kCramped);
    }
  }
}

}  // namespace heddle::core::manager
