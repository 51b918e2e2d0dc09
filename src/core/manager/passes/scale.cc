#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/manager/further_plans.h"
#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/replicas.h"
#include "core/manager/views.h"
#include "policy/autoscale.h"

namespace heddle::core::manager {
namespace {

/// Whether all of the model that serves is stages: it is gathered first.
bool in_stages(const State& state, ModelId id, const ModelState& model) {
  return !serves_complete(state, id) &&
         std::ranges::any_of(model.cuts, [&](ModelId cut) { return somewhere(state, cut); });
}

/// One device more for a model with so much load: one that it was spared on, else where that costs
/// others less than the model's own requests would wait.
void add_for_load(const Parts& core, ModelId id, double load) {
  if (core.loads.take_back(id)) {
    return;
  }
  const std::optional<ReplicaPlace> place = place_for_one_more(core.state, id);
  if (place && place->lost <= load * to_seconds(place->load_takes)) {
    add_replica(
        core,
        id,
        *place,
        number(load) + " requests at once on average, where a device should bear " +
            std::to_string(core.state.models.at(id).config.batch) +
            describe_beside(core.state,
                            id,
                            core.state.models.at(id).sharded() ? policy::PlanKind::kGroup
                                                               : policy::PlanKind::kActivate,
                            place->device));
  }
}

}  // namespace

void scale(const Parts& core) {
  const State& state = core.state;
  for (const auto& [id, known] : state.index.named) {
    const ModelState& model = *known;
    if (model.demand.in_system() == 0 || model.external() || model.removed ||
        in_stages(state, id, model)) {
      continue;
    }
    std::vector<policy::InstanceView> running;
    std::int64_t starting = 0;
    for (const auto& [device_id, device, instance] : model.spots) {
      starting += instance->is<Loading>() ? 1 : 0;
      if (instance->is<Serving>() && !instance->spare) {
        running.push_back({.id = replica_id(device_id, id),
                           .running = std::ssize(instance->in_flight),
                           .started = instance->serving_since});
      }
    }
    const double load = core.demand.load(id);
    const policy::Scaling scaling = policy::choose_scaling(
        load, model.config.batch, running, starting, state.now, {.least = 1});
    for (const policy::ReplicaId spared : scaling.stop) {
      if (!was_short(state, model)) {
        core.residency.spare(device_of(spared), id, true);
      }
    }
    if (scaling.start > 0 && !model.claim) {
      add_for_load(core, id, load);
    }
  }
}

}  // namespace heddle::core::manager
