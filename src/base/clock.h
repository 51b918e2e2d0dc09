#pragma once

#include <chrono>

#include "base/time.h"

namespace heddle {

/// The time by the machine's monotonic clock: for the shells, which tell it to the code that
/// decides. Instants of all processes of one machine can be compared.
[[nodiscard]] inline Instant steady_now() {
  return Instant(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace heddle
