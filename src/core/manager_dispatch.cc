#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "core/manager_core_impl.h"

/// Which request goes to which device that serves its model.
namespace heddle::core {

/// A device that was kept free for a request is free for all again when that cannot run there.
void ManagerCore::Impl::release_devices() {
  for (auto& [device_id, device] : devices_) {
    if (!device.alone || requests_.at(*device.alone).device) {
      continue;
    }
    const auto found = device.instances.find(requests_.at(*device.alone).model);
    if (found == device.instances.end() || found->second.stage != InstanceStage::kServing) {
      device.alone.reset();
    }
  }
}

/// Sends the request to the instance, unless it or another has to run alone and cannot yet.
bool ManagerCore::Impl::dispatch(RequestId id, DeviceId device_id, Instance& instance) {
  DeviceState& device = devices_.at(device_id);
  RequestState& request = requests_.at(id);
  const std::int64_t room = tokens_max(request.model, device_id);
  if (request.need > room || now_ < instance.resting_until) {
    wake_by(instance.resting_until);
    return false;
  }
  if (models_.at(request.model).foreign()) {
    return send(id, device_id, instance);
  }
  if (request.deaths >= kDeathsInCompany && !device.alone && !device.plan) {
    device.alone = id;
  }
  if (device.alone && device.alone != id) {
    return false;
  }
  if (request.deaths >= kDeathsInCompany) {
    const bool empty =
        std::all_of(device.instances.begin(), device.instances.end(), [](const auto& entry) {
          return entry.second.in_flight.empty();
        });
    if (device.alone != id || !empty) {
      return false;
    }
  }
  // Wherever it goes on, the answer is no shorter and no longer than it would have become here.
  request.need = request.tokens = std::min(request.tokens, room);
  return send(id, device_id, instance);
}

bool ManagerCore::Impl::send(RequestId id, DeviceId device_id, Instance& instance) {
  RequestState& request = requests_.at(id);
  DeviceState& device = devices_.at(device_id);
  models_.at(request.model)
      .waiting.erase(QueueKey{.priority = request.priority, .order = request.order});
  const bool alone = std::all_of(device.instances.begin(),
                                 device.instances.end(),
                                 [](const auto& entry) { return entry.second.in_flight.empty(); });
  device.undisturbed.reset();
  if (alone && instance.answered && request.arrived == now_) {
    device.undisturbed = id;
  }
  request.device = device_id;
  instance.in_flight.insert(id);
  instance.used = true;
  act(Dispatch{.request = id,
               .device = device_id,
               .epoch = device.epoch,
               .tokens = request.tokens,
               .due = request.due});
  return true;
}

/// Where the model serves, the best place for its next request first: those that are not spared
/// and where nobody waits for memory, while they have room, then those with the fewest requests of
/// it.
std::vector<DeviceId> ManagerCore::Impl::serving_places(ModelId id) const {
  std::vector<std::tuple<bool, std::int64_t, DeviceId>> places;
  const std::int64_t batch = models_.at(id).config.batch;
  bool room = false;
  for (const auto& [device_id, device] : devices_) {
    const auto found = device.instances.find(id);
    if (found != device.instances.end() && found->second.stage == InstanceStage::kServing &&
        !blocked(device, id)) {
      const auto load = std::ssize(found->second.in_flight);
      const bool shortage = options_.planner.pressure && device.short_sequences > 0;
      places.emplace_back(found->second.spare || shortage, load, device_id);
      room = room || (!found->second.spare && !shortage && load < batch);
    }
  }
  for (auto& place : places) {
    std::get<bool>(place) = std::get<bool>(place) && room;
  }
  std::sort(places.begin(), places.end());
  std::vector<DeviceId> sorted;
  for (const auto& place : places) {
    sorted.push_back(std::get<DeviceId>(place));
  }
  return sorted;
}

/// Where a request may go. One that has to run alone keeps one device free, not all of them.
std::vector<DeviceId> ManagerCore::Impl::places_for(RequestId id) const {
  const RequestState& request = requests_.at(id);
  std::vector<DeviceId> places = serving_places(request.model);
  if (request.deaths < kDeathsInCompany) {
    return places;
  }
  for (const auto& [device_id, device] : devices_) {
    if (device.alone == id) {
      return {device_id};
    }
  }
  places.resize(std::min<std::size_t>(places.size(), 1));
  return places;
}

void ManagerCore::Impl::dispatch_waiting(ModelId id, ModelState& model) {
  if (model.waiting.empty()) {
    return;
  }
  const std::map<QueueKey, RequestId> waiting = model.waiting;
  for (const auto& [key, request] : waiting) {
    const std::vector<DeviceId> places = places_for(request);
    const bool sent = std::any_of(places.begin(), places.end(), [&](DeviceId place) {
      return dispatch(request, place, devices_.at(place).instances.at(id));
    });
    RequestState& state = requests_.at(request);
    if (!sent && !state.held) {
      state.held = true;
      act(Hold{.request = request});
    }
  }
}

}  // namespace heddle::core
