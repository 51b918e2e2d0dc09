#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct LayerNormArgs {
  ConstTensorRef x{};       ///< f32 [tokens, columns]
  ConstTensorRef weight{};  ///< f32 [columns]
  ConstTensorRef bias{};    ///< f32 [columns]
  TensorRef out{};          ///< f32 [tokens, columns]; may be `x`.
  TensorRef copy{};         ///< The same, f32 or bf16 (rounded) [tokens, columns]; no other tensor.
  float eps = 1e-12F;
};

/// out[t][i] = copy[t][i] = (x[t][i] - m) / sqrt(v + eps) weight[i] + bias[i]
///
/// with m the mean of row t and v the mean of (x[t][j] - m)^2 over j (J. L. Ba, J. R. Kiros and
/// G. E. Hinton, "Layer Normalization", arXiv:1607.06450, Eqs. (3) and (4)). Within
/// 2^-20 (1 + max_j |x[t][j] - m| / sqrt(v + eps)) |weight[i]| + 2^-22 |bias[i]| of the exact
/// value, and 2^-18 |m| / sqrt(v + eps) |weight[i]| for what subtracting the mean cancels. tokens
/// == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail. Only CPUs have it.
void layer_norm(OpContext& context, const LayerNormArgs& args);

}  // namespace heddle::ops
