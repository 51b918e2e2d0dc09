#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

/// What is to change in the logit of one token of one row.
struct TokenUse {
  std::int32_t token = 0;
  std::int32_t generated = 0;  ///< How often it stands among the generated tokens.
  float bias = 0.0F;           ///< logit_bias.
  std::int32_t seen = 0;       ///< 1 if it stands in the prompt or among the generated tokens.
};

/// One row's penalties, and its uses [begin, end): distinct tokens of the vocabulary.
struct PenaltyRow {
  float repetition = 1.0F;
  float presence = 0.0F;
  float frequency = 0.0F;
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

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
