#pragma once

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

// Operations that follow each other, as one launch where a device has a kernel for them together
// and few tokens make launches what takes the time. Results are those of the operations one by one:
// on a CPU and for linear_norm to the bit, for linear_silu within the rounding of the type that
// gates would have been stored in.

struct LinearNormArgs {
  LinearArgs linear{};
  RmsNormArgs norm{};  ///< `x` is linear.out.
};

/// linear(linear), rms_norm(norm).
void linear_norm(OpContext& context, const LinearNormArgs& args);

struct LinearSiluArgs {
  LinearArgs linear{};  ///< The weight has gates' rows, then as many of ups. Its `out` is scratch.
  TensorRef out{};      ///< As SiluMulArgs::out.
};

/// linear(linear), silu_mul of what it gives. Without residual.
void linear_silu(OpContext& context, const LinearSiluArgs& args);

}  // namespace heddle::ops
