#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <sys/stat.h>

namespace heddle {

/// Of a file: its number, its size and when it was written; zeros where there is none. It differs
/// when the file was replaced or written to.
using FileStamp = std::array<std::int64_t, 4>;

[[nodiscard]] inline FileStamp stamp_of(const std::string& file) {
  struct stat state{};
  if (stat(file.c_str(), &state) != 0) {
    return {};
  }
  return {static_cast<std::int64_t>(state.st_ino),
          static_cast<std::int64_t>(state.st_size),
          static_cast<std::int64_t>(state.st_mtim.tv_sec),
          static_cast<std::int64_t>(state.st_mtim.tv_nsec)};
}

}  // namespace heddle
