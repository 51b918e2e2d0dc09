#pragma once

#include "base/tunables.h"
#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

/// On CUDA: scratch memory that products of many tokens put numbers of blocks in, at most [bytes].
inline constexpr std::size_t kUnpackedBytes = std::size_t{32} << 20U;
/// What products of FP8 on both sides need of it beside tokens, weights and results, at most.
inline constexpr std::int64_t kF8Padding = std::int64_t{16} << 10U;
/// Of more tokens than this they do so.
[[nodiscard]] inline std::int64_t unpacked_tokens() {
  return tuned(Tuned::kUnpackedTokens);
}

struct LinearArgs {
  /// [tokens, inputs], of the type of `weight`; bf16 with int8 and blocks.
  ConstTensorRef x{};
  /// f32, bf16 or int8 [outputs, inputs], contiguous; or blocks in panels (spec/block_panels.h).
  ConstTensorRef weight{};
  ConstTensorRef scale{};     ///< f32 [outputs] with int8, and only then.
  ConstTensorRef bias{};      ///< f32 [outputs], or absent.
  ConstTensorRef residual{};  ///< f32 [tokens, outputs], or absent. May be `out`.
  /// [tokens, outputs]. Does not overlap `x`. f32, or bf16 (rounded) without residual where
  /// KernelTable::narrow_from allows and `x` is.
  TensorRef out{};
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
/// FP8, on a CPU: what the same rows in bfloat16 give (each number times its scale, rounded to
/// float and then to nearest), to the bit.
///
/// Other blocks, on a CPU: the numbers of a token are first rounded, 32 at a time, to multiples of
/// s = max |x| / 127 of those. The sum over 32 inputs (Q6_K: 16) of products of integers is exact;
/// times s and the block's scale, a float, it is added in the order of inputs by one fused
/// multiply-add. Then, where the type has minima, s times the sum of integers times the minimum is
/// added likewise. So the bits are the same for every number of tokens and threads and every set of
/// instructions. With w_i = d_b v_i + m_b for weight i of block b, q_i for the integer of x_i, and
///
///     e = sum_b s_b (1 + 2^-14) / 2 sum_{i in b} |w_i|
///     r = sum_b s_b sum_{i in b} |q_i| (|d_b v_i| + |m_b|)
///
/// it is within e + (inputs / 16 + 4) 2^-24 r of the exact value: e is what rounding x costs. Where
/// all 32 are below 1e-30 they count as zero. If one of them is not finite, no output is.
///
/// Blocks, on CUDA: numbers of a token are taken as they are. Of up to unpacked_tokens() tokens,
/// and of more where there is no cuBLASLt, products of v_i (integers, or FP8) with x are added in
/// float, those of 32 inputs (Q6_K: 16) before they meet the block's scale: within inputs 2^-24
/// sum_i |x_i| (|d_b v_i| + |m_b|) of the exact value. Of more tokens weights are rounded to
/// bfloat16 before, which costs up to 2^-9 sum_i |x_i w_i|.
///
/// FP8 on both sides (kF8Both), on CUDA, of more than unpacked_tokens() tokens, where cuBLASLt has
/// products of FP8 for the device: with a = max_i |x_i| / 448 a token's numbers become the nearest
/// a q_i, where q_i is an E4M3; the product of q_i with the weight's numbers meets a and the row's
/// scale in float. Rounding costs up to sum_i |w_i| max(2^-4 |x_i|, 2^-10 a), and how the library
/// adds up is its own: in float on the emulated driver, on GPUs said to be with some 14 bits within
/// 128 inputs (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.3.2). A
/// token whose numbers are all below 1e-30 counts as zero; one with a number that is not finite
/// gives none that is. Elsewhere, and of fewer tokens, kF8Both is kF8.
///
/// tokens == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void linear(OpContext& context, const LinearArgs& args);
/// The CHECKs.
void check_linear(const OpContext& context, const LinearArgs& args);

}  // namespace heddle::ops
