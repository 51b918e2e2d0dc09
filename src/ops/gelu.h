#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct GeluArgs {
  ConstTensorRef x{};  ///< f32 [tokens, n]
  TensorRef out{};     ///< f32 or bf16 (rounded) [tokens, n]. Does not overlap x.
};

/// out[t][i] = gelu(x[t][i]) with
///
///     gelu(x) = x / 2 (1 + erf(x / sqrt(2)))
///
/// (D. Hendrycks and K. Gimpel, arXiv:1606.08415, section 2), the error function being computed by
/// formula 7.1.26 of M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions". Within
/// 2^-21 |x| of the exact value. tokens == 0 is a no-op. Shapes and types that do not fit are bugs
/// and CHECK-fail. Only CPUs have it.
void gelu(OpContext& context, const GeluArgs& args);

}  // namespace heddle::ops
