#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::gguf {

/// How names of GGUF files end.
inline constexpr std::string_view kGgufEnd = ".gguf";

/// What the end of a name says of a part of a split file: "x-00002-of-00003.gguf".
struct PartName {
  std::string stem{};  ///< "x".
  int number = 1;      ///< From 1.
  int count = 1;       ///< At most 1024.
};

/// Nothing where the name is no part's.
[[nodiscard]] std::optional<PartName> part_name(const std::string& name);

}  // namespace heddle::gguf
