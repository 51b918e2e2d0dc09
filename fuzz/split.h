#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace heddle::fuzz {

/// An input of N texts: zero bytes end all but the last, and texts that are missing are empty.
template <std::size_t N>
std::array<std::string_view, N> split(std::string_view input) {
  std::array<std::string_view, N> texts;
  for (std::size_t i = 0; i + 1 < N; ++i) {
    const std::size_t end = input.find('\0');
    texts[i] = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  }
  texts[N - 1] = input;
  return texts;
}

}  // namespace heddle::fuzz
