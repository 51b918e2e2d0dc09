#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/views.h"
#include "policy/lending.h"

namespace heddle::core::manager {
namespace {

/// It is to go, or another instance takes its place.
bool gives_up(const State& state, ModelId id, const Instance& instance) {
  if (instance.is<Draining>()) {
    return true;
  }
  if (!instance.is<Serving>() || !instance.moves_to) {
    return false;
  }
  const auto& there = state.devices.at(*instance.moves_to).instances;
  const auto found = there.find(id);
  return found != there.end() && found->second.is<Serving>();
}

/// Whether a device has room for one more request, of about so many pages of KV.
bool has_room(const State& state, DeviceId device_id, ModelId id, std::int64_t pages) {
  const DeviceState& device = state.devices.at(device_id);
  const Instance& instance = device.instances.at(id);
  const std::int64_t workspace = workspace_of(state, device, id);
  return instance.complete && !instance.moves_to && !device.leaving && !device.alone &&
         device.shortage.sequences == 0 &&
         policy::recallable(1,
                            pages,
                            free_pages(state, device, workspace) - workspace,
                            state.models.at(id).config.batch - std::ssize(instance.in_flight)) > 0;
}

/// Whether requests of the instance have a place to go to. Who runs in stages beside the whole
/// model goes there by itself (RequestQueues::gather).
bool has_place(const State& state, const DeviceState& device, ModelId id, ModelId whole) {
  const Instance& instance = device.instances.at(id);
  const std::int64_t each =
      instance.kv_pages / std::max<std::int64_t>(std::ssize(instance.in_flight), 1);
  const std::vector<DeviceId> places = serving_places(state, whole);
  const bool beside = id != whole && std::ranges::count(places, device.config.id) > 0;
  return !beside && std::ranges::any_of(places, [&](DeviceId place) {
    return place != device.config.id && has_room(state, place, whole, each);
  });
}

}  // namespace

void follow(const Parts& core) {
  const State& state = core.state;
  each(state.index.watched, [&](const std::pair<DeviceId, ModelId>& spot) {
    const auto [device_id, id] = spot;
    const DeviceState& device = state.devices.at(device_id);
    if (!device.up) {
      return;
    }
    const Instance& instance = device.instances.at(id);
    for (const auto& [request, until] : instance.owes) {
      core.out.wake_by(until);
    }
    if (instance.in_flight.empty() || !gives_up(state, id, instance)) {
      return;
    }
    const ModelState& model = state.models.at(id);
    const bool sharded = model.grouped() && !of_cut(state, id);
    if (!model.external() && !sharded && has_place(state, device, id, asked(state, id))) {
      core.queues.yield(device_id, id);
    }
  });
}

}  // namespace heddle::core::manager
