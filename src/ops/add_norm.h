#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct AddNormArgs {
  TensorRef x{};            ///< f32 [tokens, columns]. Holds its norm afterwards.
  ConstTensorRef weight{};  ///< f32 [columns], or absent: `x` is added as it is.
  float eps = 1e-6F;
  float factor = 1.0F;
  TensorRef sum{};  ///< f32 [tokens, columns]. Does not overlap `x`.
};

/// sum += factor rms_norm(x), as rms_norm() gives it, or factor x without a weight: what a layer
/// adds to the hidden states where that is normalised or scaled. tokens == 0 is a no-op. Shapes and
/// types that do not fit are bugs and CHECK-fail. Only CPUs have it.
void add_norm(OpContext& context, const AddNormArgs& args);

}  // namespace heddle::ops
