#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// Threads of a block that does a vector; as many as the products' blocks have that do the same.
constexpr unsigned kNormThreadsMax = 256;

/// heddle_rms_norm: vectors of a whole block each. heddle_rms_norm_short: of a warp each.
struct RmsNormParams {
  const float* x;  ///< [tokens, heads, columns]
  const float* weight;
  void* out;
  std::int64_t x_token_stride;
  std::int64_t x_head_stride;
  std::int64_t out_token_stride;
  std::int64_t out_head_stride;
  std::int64_t vectors;  ///< tokens * heads
  std::int32_t heads;
  std::int32_t columns;
  std::int32_t bf16;   ///< The type of `out`; 0: float32.
  std::int32_t quads;  ///< Vectors are aligned on both sides and columns a multiple of four.
  float eps;
};

}  // namespace heddle::ops::cuda
