#pragma once

#include <vector>

#include "core/manager/state.h"

/// What there is to see of the manager's core, for listings and metrics; by id.
namespace heddle::core::manager {

[[nodiscard]] std::vector<ModelStatus> model_statuses(const State& state);
[[nodiscard]] std::vector<DeviceStatus> device_statuses(const State& state);

/// CHECK-fails if the state contradicts itself.
void check_invariants(const State& state);

}  // namespace heddle::core::manager
