#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/log_prob_row.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct LogProbsArgs {
  ConstTensorRef logits{};           ///< f32 [rows, vocab]
  const LogProbRow* rows = nullptr;  ///< [rows], on the device.
  ConstTensorRef choices{};          ///< i32: chosen tokens. Rows without one (negative) are left.
  std::int32_t* tokens = nullptr;    ///< [rows, kLogProbsWidth]
  float* log_probs = nullptr;        ///< [rows, kLogProbsWidth]
};

/// log softmax(logits) of the chosen token and of the `top` likeliest tokens, likeliest first,
/// lowest id first on ties (fewer where the vocabulary is smaller; those places hold -1). The sum
/// is taken in double, in an order that the vocabulary's size fixes (on a CPU that of ids): a row's
/// result depends on its logits alone.
///
/// rows == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void log_probs(OpContext& context, const LogProbsArgs& args);

}  // namespace heddle::ops
