#pragma once

#include <cstdint>

namespace heddle::ops {

/// Most likeliest tokens that a row may ask for.
constexpr std::int32_t kLogProbsTopMax = 20;
/// Places of a row in the results: the chosen token, then the likeliest ones.
constexpr std::int64_t kLogProbsWidth = 1 + kLogProbsTopMax;

/// What one row asks for.
struct LogProbRow {
  std::int32_t choice = 0;  ///< Where in LogProbsArgs::choices its token is.
  std::int32_t top = 0;     ///< How many of the likeliest, at most kLogProbsTopMax.
};

}  // namespace heddle::ops
