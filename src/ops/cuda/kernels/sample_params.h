#pragma once

#include <cstdint>

#include "ops/sample_row.h"

namespace heddle::ops::cuda {

/// Of heddle_sample: one block per row, of row_threads(vocab) threads.
struct SampleParams {
  const float* logits = nullptr;  ///< [rows], `stride` apart.
  std::int64_t stride = 0;
  std::int32_t vocab = 0;
  std::int32_t mask_stride = 0;  ///< Words of a mask.
  const SampleRow* rows = nullptr;
  const std::uint32_t* masks = nullptr;
  std::int32_t* tokens = nullptr;  ///< [rows]
};

}  // namespace heddle::ops::cuda
