#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct LinearArgs {
  ConstTensorRef x{};         ///< [tokens, inputs], of the type of `weight`; bf16 with int8.
  ConstTensorRef weight{};    ///< f32, bf16 or int8 [outputs, inputs], contiguous.
  ConstTensorRef scale{};     ///< f32 [outputs] with int8, and only then.
  ConstTensorRef bias{};      ///< f32 [outputs], or absent.
  ConstTensorRef residual{};  ///< f32 [tokens, outputs], or absent. May be `out`.
  TensorRef out{};            ///< f32 [tokens, outputs]. Does not overlap `x`.
};

/// out[t][o] = scale[o] sum_i x[t][i] weight[o][i] + bias[o] + residual[t][o].
///
/// Float32 and bfloat16: products and sums are float, never less (no TF32). On a CPU each output
/// has one order of summation that depends on `inputs` alone, so its bits are the same for any
/// number of tokens and threads; on CUDA its bits depend on the shape of the product too, but not
/// on chance. Within inputs * 2^-24 * sum_i |x[t][i] weight[o][i]| (plus one rounding each for bias
/// and residual) of the exact value; in practice some tens of times closer. Subnormal bfloat16 may
/// count as zero.
///
/// int8: the numbers of a token are first rounded to multiples of 2^(e - 14), where 2^e is the
/// largest power of two in its largest magnitude: sixteen bits with the sign, which hold a bfloat16
/// exactly unless it is below 2^-7 of the largest. Their sum is exact and rounded to float once:
/// the same bits on every device. (CUDA: at most 65792 inputs, so that 32 bits hold what is
/// summed.) Within scale 2^-15 max_i |x[t][i]| sum_i |weight[o][i]| (plus rounding) of the exact
/// value. A token with a number that is not finite gives none that is.
///
/// tokens == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void linear(OpContext& context, const LinearArgs& args);

}  // namespace heddle::ops
