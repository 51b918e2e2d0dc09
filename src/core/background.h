#pragma once

#include <cstdint>

#include "base/time.h"

namespace heddle::core {

/// Requests of this priority, or beyond it, run when nobody else needs a device, such as lines of
/// batches: they are no load that anything is planned by. Clients cannot ask for it: theirs ends at
/// 1,000,000.
inline constexpr std::int32_t kBackgroundPriority = 1'000'001;

/// Nobody waits for their first tokens.
inline constexpr Duration kBackgroundTtft = std::chrono::hours(24);

[[nodiscard]] constexpr bool is_background(std::int32_t priority) {
  return priority >= kBackgroundPriority;
}

}  // namespace heddle::core
