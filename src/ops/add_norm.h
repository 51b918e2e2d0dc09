#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct AddNormArgs {
  TensorRef x{};            ///< f32 [tokens, columns]. Destroyed.
  ConstTensorRef weight{};  ///< f32 [columns], or absent: `x` is added as it is.
  float eps = 1e-6F;
  float factor = 1.0F;
  TensorRef sum{};               ///< f32 [tokens, columns]. Does not overlap `x`.
  ConstTensorRef next_weight{};  ///< f32 [columns], or absent.
  TensorRef next{};  ///< f32 or bf16 (rounded) [tokens, columns], or absent. Overlaps neither.
};

/// sum += factor rms_norm(x), as rms_norm() gives it, or factor x without a weight: what a layer
/// adds to the hidden states where that is normalised or scaled. Then, where there is `next`,
/// next = rms_norm(sum) by next_weight and eps, or `sum` itself without that weight: what goes into
/// the product behind. What `x` has afterwards is not said. tokens == 0 is a no-op. Shapes and
/// types that do not fit are bugs and CHECK-fail.
void add_norm(OpContext& context, const AddNormArgs& args);

}  // namespace heddle::ops
