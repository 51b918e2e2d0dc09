#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace heddle::sim {

/// As std::printf writes it; at most 159 bytes.
template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), format, arguments...);
  return text.data();
}

}  // namespace heddle::sim
