#include <algorithm>
#include <vector>

#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

/// Whether a request that has to run alone may run on the device now, which is kept free for it.
bool has_to_itself(const Parts& core, RequestId id, const DeviceState& device) {
  if (!device.alone && !device.plan) {
    core.queues.keep_alone(device.config.id, id);
  }
  return device.alone == id &&
         std::all_of(device.instances.begin(), device.instances.end(), [](const auto& entry) {
           return entry.second.in_flight.empty();
         });
}

/// An instance that may run a request: of its model, or of a cut of that.
struct Candidate {
  DeviceId device{};
  ModelId as{};
};

/// Sends the request to the instance, unless it or another has to run alone and cannot yet.
bool send(const Parts& core, RequestId id, const Candidate& place) {
  const DeviceId device_id = place.device;
  const RequestState& request = core.state.requests.at(id);
  const DeviceState& device = core.state.devices.at(device_id);
  const Instance& instance = device.instances.at(place.as);
  const std::int64_t room = tokens_max(core.state, place.as, device_id);
  if (request.need > room || core.state.now < instance.resting_until) {
    core.out.wake_by(instance.resting_until);
    return false;
  }
  if (core.state.models.at(request.model).external()) {
    core.queues.send(id, device_id, std::nullopt);
    return true;
  }
  const bool runs_alone = request.deaths >= kDeathsInCompany;
  if (runs_alone ? !has_to_itself(core, id, device) : device.alone && device.alone != id) {
    return false;
  }
  // Wherever it goes on, the answer is no shorter and no longer than it would have become here.
  core.queues.send(id, device_id, room, place.as);
  return true;
}

/// Where a request may go: to the whole model first, but for weights of it that are still to come.
/// One that has to run alone keeps one device free, not all of them.
std::vector<Candidate> candidates(const State& state, RequestId id) {
  const RequestState& request = state.requests.at(id);
  std::vector<ModelId> all = forms(state.models.at(request.model));
  if (!serves_complete(state, request.model)) {
    std::ranges::rotate(all, all.begin() + 1);
  }
  std::vector<Candidate> places;
  for (const ModelId form : all) {
    for (const DeviceId place : serving_places(state, form, request.adapter)) {
      places.push_back({.device = place, .as = form});
    }
  }
  if (request.deaths < kDeathsInCompany) {
    return places;
  }
  each(state.index.alone, [&](DeviceId device_id) {
    if (state.devices.at(device_id).alone == id) {
      std::erase_if(places, [&](const Candidate& place) { return place.device != device_id; });
    }
  });
  places.resize(std::min<std::size_t>(places.size(), 1));
  return places;
}

}  // namespace

void release(const Parts& core) {
  each(core.state.index.alone, [&](DeviceId id) {
    const DeviceState& device = core.state.devices.at(id);
    if (core.state.requests.at(*device.alone).device) {
      return;
    }
    const std::vector<ModelId> all =
        forms(core.state.models.at(core.state.requests.at(*device.alone).model));
    if (std::ranges::none_of(all, [&](ModelId form) {
          const auto found = device.instances.find(form);
          return found != device.instances.end() && found->second.is<Serving>();
        })) {
      core.queues.release(id);
    }
  });
}

void dispatch(const Parts& core) {
  each(core.state.index.sendable, [&](ModelId id) {
    const std::map<QueueKey, RequestId> waiting = core.state.models.at(id).waiting;
    for (const auto& [key, request] : waiting) {
      const bool sent =
          std::ranges::any_of(candidates(core.state, request),
                              [&](const Candidate& place) { return send(core, request, place); });
      if (!sent) {
        core.queues.hold(request);
      }
    }
  });
}

}  // namespace heddle::core::manager
