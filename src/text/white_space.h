#pragma once

#include <string_view>

namespace heddle::text {

/// What JSON and the marks of models' formats may have around them.
inline constexpr std::string_view kWhite = " \t\r\n";

/// Whether `c` is one of kWhite.
[[nodiscard]] inline bool is_white(char c) {
  return kWhite.find(c) != std::string_view::npos;
}

}  // namespace heddle::text
