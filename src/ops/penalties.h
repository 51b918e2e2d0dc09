#pragma once

#include "ops/context.h"
#include "ops/penalty_row.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct PenaltiesArgs {
  TensorRef logits{};                ///< f32 [rows, vocab]. In and out.
  const PenaltyRow* rows = nullptr;  ///< [rows], on the device.
  const TokenUse* uses = nullptr;    ///< On the device.
};

/// Changes the logit x of each listed token, in this order:
///
///     x = x + bias
///     x = x / repetition if x > 0, else x * repetition      where seen (N. Keskar et al., "CTRL",
///                                                           arXiv:1909.05858, section 4.1)
///     x = x - presence   where generated > 0
///     x = x - frequency * generated
///
/// rows == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void penalties(OpContext& context, const PenaltiesArgs& args);

}  // namespace heddle::ops
