#pragma once

#include "base/time.h"
#include "core/serving.h"

namespace heddle::core {

/// How often whoever gives up idle models looks for them.
inline constexpr Duration kIdleLookInterval = std::chrono::milliseconds(500);

/// Whether the model is there, nobody uses it or waits for it, and it was last used `limit` ago or
/// longer.
[[nodiscard]] inline bool idle_for(const ModelStatus& model, Duration limit, Instant now) {
  const bool here = model.residency == Residency::kWarm || model.residency == Residency::kServing;
  const bool used = model.requests_running > 0 || model.requests_waiting > 0;
  return here && !used && now - model.last_used >= limit;
}

}  // namespace heddle::core
