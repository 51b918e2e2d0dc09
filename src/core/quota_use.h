#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::core {

/// How many of these a gateway tells of at once.
inline constexpr std::size_t kQuotaUsesMost = 4096;

/// What a key has used of its quota at one gateway since that last told of it.
struct QuotaUse {
  std::string key{};  ///< What stands for the key at all gateways: digits of its digest.
  std::int64_t requests = 0;
  std::int64_t tokens = 0;
  std::int64_t requests_per_minute = 0;  ///< Its bounds there; 0: none.
  std::int64_t tokens_per_minute = 0;
  friend bool operator==(const QuotaUse&, const QuotaUse&) = default;
};

}  // namespace heddle::core
