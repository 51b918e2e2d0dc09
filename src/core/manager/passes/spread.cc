#include "policy/spread.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/manager/further_plans.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/replicas.h"
#include "core/manager/shortages.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

/// Whether requests that wait elsewhere may go there: nobody does on that device.
bool has_time(const State& state, ModelId id, const Spot& spot) {
  return !spot.instance->spare && spot.device->up && !spot.device->leaving &&
         !blocked(state, *spot.device, id) && spot.device->shortage.sequences == 0 &&
         std::ranges::all_of(spot.device->instances,
                             [](const auto& entry) { return entry.second.late == 0; });
}

/// Where a model is and stays, or comes.
struct Instances {
  std::vector<const Spot*> spots{};
  std::vector<policy::InstanceLoad> loads{};  ///< Of these.
};

Instances instances_of(const State& state, ModelId id) {
  Instances instances;
  for (const Spot& spot : state.models.at(id).spots) {
    const Instance& instance = *spot.instance;
    if (instance.is<Loading>() || instance.is<Serving>()) {
      instances.spots.push_back(&spot);
      instances.loads.push_back({.in_flight = std::ssize(instance.in_flight),
                                 .late = instance.late,
                                 .serves = instance.is<Serving>(),
                                 .complete = instance.complete,
                                 .open = has_time(state, id, spot)});
    }
  }
  return instances;
}

void recall_waiting(const Parts& core, ModelId id, const Instances& instances) {
  const std::int64_t batch = core.state.models.at(id).config.batch;
  for (std::size_t i = 0; i < instances.spots.size(); ++i) {
    const Spot& from = *instances.spots[i];
    const std::int64_t most = policy::movable(instances.loads, i, batch);
    if (most > 0 && from.device->up) {
      core.out.act(TellWorker{.device = from.id,
                              .epoch = from.device->epoch,
                              .message = RecallRequests{.model = id, .most = most}});
    }
  }
}

/// An instance that was spared costs nothing.
void add_instance(const Parts& core, ModelId id) {
  const ModelState& model = core.state.models.at(id);
  if (core.loads.take_back(id)) {
    return;
  }
  const std::optional<ReplicaPlace> place = place_for_one_more(core.state, id);
  if (!place) {
    return;
  }
  const double cost = to_seconds(place->load_takes) + place->lost;
  if (model.unborne.waited >= cost &&
      add_replica(core,
                  id,
                  *place,
                  std::to_string(model.unborne.requests) +
                      " requests are more than its instances bear, where a device should bear " +
                      std::to_string(model.config.batch) +
                      describe_beside(
                          core.state,
                          id,
                          model.sharded() ? policy::PlanKind::kGroup : policy::PlanKind::kActivate,
                          place->device))) {
    core.shortages.pay_unborne(id, cost);
  }
}

}  // namespace

void spread(const Parts& core) {
  const State& state = core.state;
  for (const auto& [id, known] : state.index.named) {
    const ModelState& model = *known;
    if (model.demand.in_system() == 0 || model.external() || model.removed) {
      continue;
    }
    const Instances instances = instances_of(state, id);
    core.shortages.count_unborne(
        id, policy::unborne(instances.loads, model.demand.in_system(), model.config.batch));
    recall_waiting(core, id, instances);
    if (model.unborne.requests > 0 && !model.claim) {
      add_instance(core, id);
    }
  }
}

}  // namespace heddle::core::manager
