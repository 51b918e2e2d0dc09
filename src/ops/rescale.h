#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct RescaleArgs {
  ConstTensorRef x{};  ///< f32 [tokens, columns]
  float factor = 1.0F;
  ConstTensorRef by{};  ///< f32 [1], or absent: `factor` is multiplied with it.
  float cap = 0.0F;     ///< 0: none.
  TensorRef out{};      ///< f32 or bf16 (rounded), the shape of x. May be x if f32.
};

/// out = cap tanh(factor x / cap), or factor x where there is no cap: within 2^-21 of the cap of
/// the exact value. The soft cap is that of Gemma 2 (Gemma Team, arXiv:2408.00118, section 2).
/// tokens == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void rescale(OpContext& context, const RescaleArgs& args);

}  // namespace heddle::ops
