#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_add_norm: a block for each token (ops/add_norm.h).
struct AddNormParams {
  const float* x;            ///< [tokens, columns]
  const float* weight;       ///< [columns], or nullptr.
  float* sum;                ///< [tokens, columns]
  const float* next_weight;  ///< [columns], or nullptr.
  void* next;                ///< [tokens, columns], or nullptr.
  std::int64_t x_stride;
  std::int64_t sum_stride;
  std::int64_t next_stride;
  std::int32_t columns;
  std::int32_t next_bf16;  ///< The type of `next`; 0: float32.
  std::int32_t quads;      ///< Rows and weights are aligned and columns a multiple of four.
  float eps;
  float factor;
};

}  // namespace heddle::ops::cuda
