#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct SigmoidMulArgs {
  /// [tokens, n]: f32, or bf16 where KernelTable::narrow_from allows and `rows` is.
  ConstTensorRef gate{};
  TensorRef rows{};  ///< f32 or bf16 (rounded) [tokens, n]. In and out.
};

/// rows[t][i] /= 1 + exp(-gate[t][i]): a gate behind attention (Z. Qiu et al., "Gated Attention for
/// Large Language Models", arXiv:2505.06708, Eq. (5)). Within 8 ulp of the exact value where |gate|
/// < 87, before rounding. tokens == 0 is a no-op. Shapes and types that do not fit are bugs and
/// CHECK-fail.
void sigmoid_mul(OpContext& context, const SigmoidMulArgs& args);

}  // namespace heddle::ops
