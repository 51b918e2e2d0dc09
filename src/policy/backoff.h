#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace heddle::policy {

/// The pause before attempt `attempt` (1: the first repetition): `first`, doubled with each further
/// attempt, at most `most`.
[[nodiscard]] constexpr Duration backoff(std::int64_t attempt, Duration first, Duration most) {
  Duration pause = first;
  for (std::int64_t i = 1; i < attempt && pause < most; ++i) {
    pause *= 2;
  }
  return std::min(pause, most);
}

}  // namespace heddle::policy
