#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/manager/loads.h"
#include "core/manager/state.h"
#include "policy/plans.h"

/// The plans for requests of a model that is somewhere already, and that cannot start at once
/// (docs/policies.md, "Placing"). Of one that is nowhere start_plans.h has them.
namespace heddle::core::manager {

/// Until all weights of the model are there that are on their way to the device, by estimate: what
/// its host still has to fetch at an equal share of its network, and what is left of a load as it
/// was measured.
[[nodiscard]] Duration still_to_load(const State& state, const Spot& spot, ModelId model);

/// What the last of the requests that wait at the instance waits for others there to end, by
/// estimate: n that run, and take as long as those of the model do, end at n / that. 0 where none
/// waits.
[[nodiscard]] Duration queue_time(const State& state, const Spot& spot, ModelId model);

/// The plan to wait for the instance whose weights are there first, as the model is nowhere else;
/// nullopt: none is on its way, or it serves by now.
[[nodiscard]] std::optional<policy::Plan> attach_plan(const State& state, ModelId model);

/// What requests of the model, one of ours, could have: to wait at an instance that serves (kQueue,
/// kHit where nothing runs), or at one whose weights are on their way (kAttach); one instance more
/// (kActivate, of a sharded model kGroup); memory of a neighbour for an instance that is short of
/// it (kWeave). O(devices).
[[nodiscard]] std::vector<policy::Plan> plans_beside(const State& state, ModelId model);

/// Where requests that wait for weights on their way would have their first token so much sooner by
/// one instance more that this is worth its load, and who is lost for it. nullopt: nowhere, or what
/// comes is in time, or the model is sharded or an external engine.
[[nodiscard]] std::optional<ReplicaPlace> sooner_elsewhere(const State& state, ModelId model);

/// "; instead of queue on d0 (2.1 s: comes later), ...": what plans_beside() has but the plan that
/// is taken, of that kind and there. Empty where it has nothing else.
[[nodiscard]] std::string describe_beside(const State& state,
                                          ModelId model,
                                          policy::PlanKind taken,
                                          std::optional<DeviceId> where = {});

}  // namespace heddle::core::manager
