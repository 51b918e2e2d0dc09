#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/shortages.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

/// Requests that wait at an instance for what another instance would have: those that will be late,
/// and those that are more than a device should bear.
std::int64_t waiting_at(const ModelState& model, const Spot& spot) {
  const auto in_flight = static_cast<std::int64_t>(spot.instance->in_flight.size());
  return std::max(spot.instance->late, in_flight - model.config.batch);
}

/// Whether requests that wait elsewhere may go there: nobody does on that device.
bool has_time(const State& state, ModelId id, const Spot& spot) {
  return spot.instance->is<Serving>() && spot.instance->complete && !spot.instance->spare &&
         spot.device->up && !spot.device->leaving && !blocked(state, *spot.device, id) &&
         spot.device->shortage.sequences == 0 &&
         std::ranges::all_of(spot.device->instances,
                             [](const auto& entry) { return entry.second.late == 0; });
}

/// How many requests of an instance would wait less at others of its model.
std::int64_t room_elsewhere(const State& state, ModelId id, const Spot& from) {
  const ModelState& model = state.models.at(id);
  const std::int64_t here = std::ssize(from.instance->in_flight);
  std::int64_t room = 0;
  for (const Spot& spot : model.spots) {
    const std::int64_t there = std::ssize(spot.instance->in_flight);
    if (spot.id != from.id && has_time(state, id, spot)) {
      room += std::max<std::int64_t>(0, std::min(model.config.batch - there, (here - there) / 2));
    }
  }
  return room;
}

void recall_waiting(const Parts& core, ModelId id) {
  const ModelState& model = core.state.models.at(id);
  for (const Spot& from : model.spots) {
    const std::int64_t waiting = waiting_at(model, from);
    if (waiting <= 0 || !from.device->up || !from.instance->is<Serving>()) {
      continue;
    }
    const std::int64_t most = std::min(waiting, room_elsewhere(core.state, id, from));
    if (most > 0) {
      core.out.act(TellWorker{.device = from.id,
                              .epoch = from.device->epoch,
                              .message = RecallRequests{.model = id, .most = most}});
    }
  }
}

/// Requests that wait for one more instance, beside those that are on their way.
std::int64_t unborne(const ModelState& model) {
  std::int64_t instances = 0;
  std::int64_t coming = 0;
  std::int64_t late = 0;
  for (const Spot& spot : model.spots) {
    const bool loads = spot.instance->is<Loading>();
    const bool serves = spot.instance->is<Serving>();
    instances += loads || serves ? 1 : 0;
    coming += loads || (serves && !spot.instance->complete) ? 1 : 0;
    late += serves ? spot.instance->late : 0;
  }
  const std::int64_t batch = model.config.batch;
  const std::int64_t more = model.demand.in_system() - instances * batch;
  return instances == 0 ? 0 : std::max<std::int64_t>({0, late - coming * batch, more});
}

/// An instance that was spared costs nothing.
void add_instance(const Parts& core, ModelId id) {
  const ModelState& model = core.state.models.at(id);
  if (core.loads.take_back(id)) {
    return;
  }
  const std::optional<ReplicaPlace> place = place_for_replica(core.state, id);
  if (!place) {
    return;
  }
  const double cost = to_seconds(place->load_takes) + place->lost;
  if (model.unborne.waited >= cost &&
      core.loads.replica(
          id,
          *place,
          LoadReason::kLoad,
          std::to_string(model.unborne.requests) +
              " requests are more than its instances bear, where a device should bear " +
              std::to_string(model.config.batch))) {
    core.shortages.pay_unborne(id, cost);
  }
}

}  // namespace

void spread(const Parts& core) {
  const State& state = core.state;
  for (const auto& [id, known] : state.index.named) {
    const ModelState& model = *known;
    if (model.demand.in_system() == 0 || model.external() || model.grouped() || model.removed) {
      continue;
    }
    core.shortages.count_unborne(id, unborne(model));
    recall_waiting(core, id);
    if (model.unborne.requests > 0) {
      add_instance(core, id);
    }
  }
}

}  // namespace heddle::core::manager
