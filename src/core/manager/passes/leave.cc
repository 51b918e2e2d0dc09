#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/loads.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/value.h"

namespace heddle::core::manager {
namespace {

/// Whether the model is, or is about to be, on a device that stays.
bool on_the_way(const State& state, ModelId model) {
  return std::ranges::any_of(state.models.at(model).spots, [](const Spot& spot) {
    return !spot.device->leaving && spot.instance->is<Loading>();
  });
}
bool serves_elsewhere(const State& state, ModelId model) {
  return std::ranges::any_of(state.models.at(model).spots, [](const Spot& spot) {
    return !spot.device->leaving && spot.instance->is<Serving>();
  });
}

/// Loads the model on a device that stays, where it is in use, or worth as much as what has to go
/// for it. False: it cannot be, or need not.
bool load_elsewhere(const Parts& core, const DeviceState& device, ModelId id) {
  const State& state = core.state;
  const ModelState& model = state.models.at(id);
  if (model.external() || model.grouped()) {
    return false;
  }
  const std::optional<ReplicaPlace> place = place_for_replica(state, id);
  const bool in_use = model.demand.in_system() > 0;
  const bool wanted = active(state, model) && place && place->lost <= worth(state, device, id);
  if (!place || state.now < model.retry_at || !(in_use || wanted)) {
    return false;
  }
  core.loads.hold({.model = id, .devices = {place->device}, .victims = place->victims});
  core.residency.load(place->device,
                      id,
                      place->victims,
                      LoadReason::kLeave,
                      "the host of " + device.config.name + " is to go");
  return true;
}

/// What serves goes on until another device has taken over, and no longer where none will.
void send_away(const Parts& core, const DeviceState& device, ModelId id) {
  const State& state = core.state;
  const DeviceId there = device.config.id;
  const Instance& instance = device.instances.at(id);
  if (instance.is<Serving>()) {
    const bool soon =
        on_the_way(state, id) || (!serves_elsewhere(state, id) && load_elsewhere(core, device, id));
    if (soon) {
      return;
    }
    core.residency.drain(there, id);
  }
  if (instance.is<Draining>() && idle(core.state, instance)) {
    core.residency.evict(there, id, EvictMode::kWhenIdle, EvictionReason::kLeave, {}, INT64_MAX);
  }
}

void leave_instance(const Parts& core, const DeviceState& device, ModelId id) {
  const DeviceId there = device.config.id;
  const Instance& instance = device.instances.at(id);
  const bool stands_by = instance.is<Suspended>() && instance.in_flight.empty();
  if (instance.staged() || instance.is<Loading>() || stands_by) {
    core.residency.evict(there, id, EvictMode::kNow, EvictionReason::kLeave, {}, INT64_MAX);
  } else if (!instance.part().leader) {
    send_away(core, device, id);
  } else if (const DeviceState& leader = core.state.devices.at(*instance.part().leader);
             !leader.leaving && leading(core.state, device, id) != nullptr) {
    send_away(core, leader, whole(core.state, id));
  }
}

}  // namespace

void leave(const Parts& core) {
  each(core.state.index.leaving, [&](DeviceId device_id) {
    const DeviceState& device = core.state.devices.at(device_id);
    if (device.plan && device.plan->lacks == 0) {
      core.plans.cancel(device_id);
    }
    if (device.claimed) {
      core.claims.cancel(*device.claimed);
    }
    std::vector<ModelId> here;
    for (const auto& [id, instance] : device.instances) {
      if (!instance.is<Evicting>()) {
        here.push_back(id);
      }
    }
    for (const ModelId id : here) {
      leave_instance(core, device, id);
    }
  });
}

}  // namespace heddle::core::manager
