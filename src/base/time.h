#pragma once

#include <chrono>
#include <cstdint>

#include "base/check.h"

namespace heddle {

using Duration = std::chrono::nanoseconds;

/// The clock of one process or one simulated world. It has no now(): code that decides is told the
/// time by whoever calls it, so that a simulator can own time.
struct WorldClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<WorldClock>;
  static constexpr bool is_steady = true;  // NOLINT(readability-identifier-naming): as std wants.
};

[[nodiscard]] constexpr double to_seconds(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}

/// To the nearest nanosecond. Less than 290 years, either way.
[[nodiscard]] constexpr Duration from_seconds(double seconds) {
  HEDDLE_CHECK(seconds > -9.1e9 && seconds < 9.1e9);
  return Duration(static_cast<std::int64_t>(seconds * 1e9 + (seconds < 0 ? -0.5 : 0.5)));
}

/// Time since the process, or the simulation, began.
using Instant = WorldClock::time_point;

}  // namespace heddle
