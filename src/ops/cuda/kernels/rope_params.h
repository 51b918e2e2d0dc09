#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_rope: block x turns the heads of token x, together with the others of that x.
struct RopeParams {
  float* heads;          ///< [tokens, heads, 2 half]
  const float* cos_sin;  ///< [tokens, 2 half]
  std::int64_t token_stride;
  std::int64_t head_stride;
  std::int64_t cos_sin_stride;
  std::int32_t head_count;
  std::int32_t half;
};

}  // namespace heddle::ops::cuda
