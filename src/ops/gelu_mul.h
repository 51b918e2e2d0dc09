#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct GeluMulArgs {
  /// [tokens, 2 n]: gates, then ups. f32, or bf16 where KernelTable::narrow_from allows and `out`
  /// is.
  ConstTensorRef gate_up{};
  TensorRef out{};  ///< f32 or bf16 (rounded) [tokens, n]. Does not overlap gate_up.
};

/// out[t][i] = gelu(gate_up[t][i]) gate_up[t][n + i] with
///
///     gelu(g) = g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))
///
/// the gate of GEGLU (N. Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202, Eq. (6)) by
/// the approximation of D. Hendrycks and K. Gimpel, arXiv:1606.08415, section 2. Within 2^-22
/// |g u| of the exact value of this formula, u being the up. tokens == 0 is a no-op. Shapes and
/// types that do not fit are bugs and CHECK-fail.
void gelu_mul(OpContext& context, const GeluMulArgs& args);

}  // namespace heddle::ops
