#pragma once

#include <optional>
#include <vector>

#include "core/manager/state.h"

/// What there is to see of the manager's core, for listings and metrics; by id.
namespace heddle::core::manager {

[[nodiscard]] std::vector<ModelStatus> model_statuses(const State& state);
[[nodiscard]] std::vector<DeviceStatus> device_statuses(const State& state);

/// When the first came of the requests that wait for the model; nullopt: none does.
[[nodiscard]] std::optional<Instant> waits_since(const State& state, ModelId model);

/// CHECK-fails if the state contradicts itself.
void check_invariants(const State& state);

}  // namespace heddle::core::manager
