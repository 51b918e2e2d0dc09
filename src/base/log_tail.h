#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::log {

/// A line that this process has logged.
struct Line {
  std::uint64_t number = 0;  ///< Counts from 1.
  std::string model{};       ///< The line's field of that name; empty where it has none.
  std::string text{};        ///< Without its end; cut off at 4 KiB.
};

/// Of the last 1,000 lines those with a number above `after`, oldest first. For whoever shows logs
/// elsewhere than on stderr. Any thread.
[[nodiscard]] std::vector<Line> tail(std::uint64_t after = 0);

}  // namespace heddle::log
