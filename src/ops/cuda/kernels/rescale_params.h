#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_rescale: block x makes row x of `out`, together with the others of that x.
struct RescaleParams {
  const float* x;  ///< [tokens, columns]
  void* out;       ///< [tokens, columns]
  std::int64_t x_stride;
  std::int64_t out_stride;
  std::int64_t columns;
  float factor;
  float cap;           ///< 0: none.
  std::int32_t bf16;   ///< The type of `out`; 0: float32.
  std::int32_t quads;  ///< Rows are aligned on both sides and columns a multiple of four.
};

}  // namespace heddle::ops::cuda
