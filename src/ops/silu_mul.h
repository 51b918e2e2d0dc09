#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct SiluMulArgs {
  /// [tokens, 2 n]: gates, then ups. f32, or bf16 where KernelTable::narrow_from allows and `out`
  /// is.
  ConstTensorRef gate_up{};
  TensorRef out{};  ///< f32 or bf16 (rounded) [tokens, n]. Does not overlap gate_up.
  /// Above 0: gates are at most this, and ups within it on both sides.
  float limit = 0.0F;
  float gain = 1.0F;  ///< Counts with a limit alone.
};

/// out[t][i] = g / (1 + exp(-g)) * gate_up[t][n + i] with g = gate_up[t][i]: the gate of SwiGLU
/// (N. Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202, Eq. (6)). Within 8 ulp of the
/// exact value where |g| < 87; beyond, within 1e-36 of it. tokens == 0 is a no-op. Shapes and types
/// that do not fit are bugs and CHECK-fail.
///
/// With a limit l it is g / (1 + exp(-gain g)) (u + 1), where g = min(gate, l) and u is the up
/// within [-l, l] (gpt-oss).
void silu_mul(OpContext& context, const SiluMulArgs& args);
/// The CHECKs.
void check_silu_mul(const OpContext& context, const SiluMulArgs& args);

}  // namespace heddle::ops
