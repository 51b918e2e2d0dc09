#pragma once

#include <vector>

#include "core/manager/parts.h"
#include "policy/replica_score.h"

/// What models are expected to need in the next window, as prewarming asks it (WarmServe).
namespace heddle::core::manager {

/// Of every model and external engine that may be prewarmed, by id: what it is expected to need
/// beyond the instances that serve. Without load times.
[[nodiscard]] std::vector<policy::ModelDemand> expected_demands(const Parts& core);

/// Adds how long those take to start of which replicas are wanted, and the devices where that is
/// soonest: nobody looks at the others'.
void add_sources(const State& state, std::vector<policy::ModelDemand>& demands);

}  // namespace heddle::core::manager
