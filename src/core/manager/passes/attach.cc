#include <algorithm>
#include <optional>
#include <string>

#include "core/manager/further_plans.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/start_plans.h"

namespace heddle::core::manager {
namespace {

/// Whether it was said of a request that waits when its first token comes: of the oldest, and as a
/// rule that is first in the queue.
bool predicted(const State& state, const ModelState& model) {
  return std::ranges::any_of(model.waiting, [&](const auto& entry) {
    return state.requests.at(entry.second).predicted.has_value();
  });
}

/// Loads the model where its requests would be answered so much sooner than by what is on its way.
bool overtake(const Parts& core, ModelId id) {
  const State& state = core.state;
  if (!state.options.planner.replicas || state.drain_deadline || !state.models.at(id).wanted()) {
    return false;
  }
  const std::optional<ReplicaPlace> place = sooner_elsewhere(state, id);
  if (!place) {
    return false;
  }
  std::string instead = describe_beside(state, id, policy::PlanKind::kActivate, place->device);
  core.loads.wanted(
      place->device,
      id,
      place->victims,
      policy::reason_name(place->victims.empty() ? policy::PlacementReason::kFreePages
                                                 : policy::PlacementReason::kIdleVictims),
      {.instead = std::move(instead)});
  return true;
}

/// Says when the first token comes of requests that wait for what is on its way anyway.
void predict(const Parts& core, ModelId id, const policy::Plan& plan) {
  core.out.note(
      DecisionKind::kWait,
      id,
      plan.where,
      who_waits(core.state.models.at(id)) + "; attach" + describe_first_token(plan.ttft()),
      {},
      plan.ttft());
  core.queues.predict(id,
                      {.kind = policy::PlanKind::kAttach,
                       .device = plan.where,
                       .at = core.state.now,
                       .ttft = plan.ttft()});
}

}  // namespace

void attach(const Parts& core) {
  const State& state = core.state;
  each(state.index.attaching, [&](ModelId id) {
    const ModelState& model = state.models.at(id);
    const std::optional<policy::Plan> plan = attach_plan(state, id);
    // One that takes longer than it usually does comes nobody knows when.
    const bool known =
        plan && plan->load > Duration{} && load_known(model, state.devices.at(plan->where));
    if (known && !predicted(state, model) && !overtake(core, id)) {
      predict(core, id, *plan);
    }
  });
}

void overtake(const Parts& core) {
  each(core.state.index.attaching, [&](ModelId id) { overtake(core, id); });
}

}  // namespace heddle::core::manager
