#pragma once

#include <algorithm>
#include <cstdint>

/// How much KV a sharded model holds on each of its devices, beside other models.
///
/// WarmServe (Eq. 1) reserves min(M, max(⌈M R/C⌉, K + ⌈M/C⌉)) of M pages for a model in grace that
/// has K in use and runs R of at most C requests. heddle does so for a group at any time. It knows
/// what requests need, and takes that for M R/C; what one of them may grow by meanwhile, M/C, is a
/// part of it.
namespace heddle::policy {

/// Of what is in use or wanted, so much is held beside it: one part in so many.
inline constexpr std::int64_t kShareGrowth = 4;

/// Pages to hold where requests that run or wait need `need`; `least` without any.
[[nodiscard]] constexpr std::int64_t share_to_hold(std::int64_t need, std::int64_t least) {
  return std::max(need + (need + kShareGrowth - 1) / kShareGrowth, least);
}

/// Whether so much more is held than was needed lately that it is worth giving it back.
[[nodiscard]] constexpr bool share_too_large(std::int64_t held,
                                             std::int64_t needed,
                                             std::int64_t least) {
  return held > 2 * share_to_hold(needed, least);
}

}  // namespace heddle::policy
