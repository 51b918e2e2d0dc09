#pragma once

#include <cstdint>

#include "ops/log_prob_row.h"

namespace heddle::ops::cuda {

/// Of heddle_log_probs: one block per row, of row_threads(vocab) threads.
struct LogProbsParams {
  const float* logits = nullptr;  ///< [rows], `stride` apart.
  std::int64_t stride = 0;
  std::int32_t vocab = 0;
  const LogProbRow* rows = nullptr;
  const std::int32_t* choices = nullptr;
  std::int32_t* tokens = nullptr;  ///< [rows, kLogProbsWidth]
  float* log_probs = nullptr;      ///< [rows, kLogProbsWidth]
};

}  // namespace heddle::ops::cuda
