#pragma once

#include <string_view>

#include "core/serving.h"

namespace heddle::gateway {

/// The five names that clients of this ecosystem know: unloaded, loading, loaded, sleeping and,
/// which these do not give, downloading.
[[nodiscard]] std::string_view state_name(core::Residency residency);
[[nodiscard]] std::string_view state_name(core::EngineState state);

/// llama-swap's names of the states of processes: stopped, starting, ready, stopping.
[[nodiscard]] std::string_view process_state_name(core::Residency residency);
[[nodiscard]] std::string_view process_state_name(core::EngineState state);

}  // namespace heddle::gateway
