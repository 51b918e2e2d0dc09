#pragma once

#include <chrono>

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

/// Time since the process, or the simulation, began.
using Instant = WorldClock::time_point;

}  // namespace heddle
