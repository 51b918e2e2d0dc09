#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/sample_row.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct SampleArgs {
  ConstTensorRef logits{};          ///< f32 [rows, vocab]
  const SampleRow* rows = nullptr;  ///< [rows], on the device.
  /// [masks][mask_words(vocab)], on the device: tokens whose bit (i % 32 of word i / 32) is not set
  /// count as having no probability at all.
  const std::uint32_t* masks = nullptr;
  TensorRef tokens{};  ///< i32 [rows]: the choice, or kNoToken.
};

/// Draws one token per row from softmax(logits / temperature), cut in this order: the top_k most
/// likely tokens; of those, renormalised, the fewest most likely whose probabilities reach top_p;
/// of those, the ones with at least min_p times the largest probability. At least one token stays;
/// equal logits rank by id, lowest first. Of the kept tokens in order of their ids, the first whose
/// cumulative probability exceeds `uniform` is drawn: a row's draw depends on its logits and its
/// SampleRow alone. Sums are double on a CPU; on CUDA they are exact sums of probabilities in
/// float (within 2^-20 of themselves where logits are within 16 temperatures of the largest) that
/// are rounded to multiples of 2^-44 of the largest, so that a token with less than half of that is
/// never drawn, and rows have at most 2^19 tokens.
///
/// rows == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void sample(OpContext& context, const SampleArgs& args);

}  // namespace heddle::ops
