#pragma once

#include <cstdint>

namespace heddle {

/// a / b, rounded up. For a >= 0 and b > 0.
[[nodiscard]] constexpr std::int64_t div_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace heddle
