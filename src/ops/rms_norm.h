#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct RmsNormArgs {
  ConstTensorRef x{};       ///< f32 [tokens, columns], or [tokens, heads, columns].
  ConstTensorRef weight{};  ///< f32 [columns], or absent: ones.
  TensorRef out{};          ///< f32 or bf16 (rounded), the shape of x. May be x if f32.
  float eps = 1e-6F;        ///< Added to the mean square.
};

/// Scales every vector along the last dimension to a root mean square of one, then by the weights:
///
///     out_i = x_i / sqrt(mean_j(x_j^2) + eps) * weight_i
///
/// B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, Eq. (4).
/// Agrees with the exact value to 1e-6 of it plus 16 ulp of rounding per 1024 columns. tokens == 0
/// is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void rms_norm(OpContext& context, const RmsNormArgs& args);
/// The CHECKs.
void check_rms_norm(const RmsNormArgs& args);

}  // namespace heddle::ops
