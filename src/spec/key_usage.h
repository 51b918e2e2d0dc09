#pragma once

#include <cstdint>
#include <string>

namespace heddle::spec {

/// What a key has used of a model on a day.
struct KeyUsage {
  std::int64_t day = 0;  ///< Days since 1970, UTC.
  std::string key{};     ///< What logs call the key; empty where none is asked for.
  std::string model{};
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< Of the prompts, that were not computed again.
  std::int64_t completion_tokens = 0;
  friend bool operator==(const KeyUsage&, const KeyUsage&) = default;
};

}  // namespace heddle::spec
