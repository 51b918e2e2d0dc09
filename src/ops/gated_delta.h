#pragma once

#include <vector>

#include "ops/context.h"
#include "ops/paged_kv.h"
#include "spec/model_spec.h"

namespace heddle::ops {

/// Elements of a head, and positions of the convolution, that gated_delta() takes at most.
inline constexpr std::int64_t kDeltaDimMax = 256;
inline constexpr std::int64_t kDeltaKernelMax = 8;

/// Scratch memory that gated_delta() takes of a CUDA stream, for `tokens` tokens [bytes].
[[nodiscard]] std::size_t delta_scratch_bytes(std::int64_t tokens,
                                              const spec::LinearAttention& shape);

/// What a sequence keeps of one key head of a layer, in float32 [floats]:
///
///     tail    [kernel - 1][2 key_dim + own value heads * value_dim]: the last inputs of the
///             convolution, oldest first: of queries, keys and values; up to a whole vector
///     state   [own value heads][strips][key_dim][16]: S by columns of sixteen, of which the last
///             may be more than value_dim has
struct DeltaHeadLayout {
  explicit DeltaHeadLayout(const spec::LinearAttention& shape);

  std::int64_t value_heads = 0;  ///< Of the key head.
  std::int64_t strips = 0;       ///< Of each of those.
  std::int64_t tail = 0;
  std::int64_t state = 0;

  [[nodiscard]] std::int64_t bytes() const {
    return (tail + state) * static_cast<std::int64_t>(sizeof(float));
  }
};

/// Where the states of consecutive key heads of a layer are: of sequence s one behind the other
/// from `offset` on in block table[s], and block number n begins n * block_bytes after `base`.
struct DeltaPart {
  std::int64_t heads = 0;
  std::byte* base = nullptr;
  std::int64_t block_bytes = 0;
  std::int64_t offset = 0;  ///< Bytes.
  ConstTensorRef table{};   ///< i32 [sequences, n], of which the first column counts.
  /// i32 [sequences, k]: likewise the blocks of copies (GatedDeltaArgs::copy_behind).
  ConstTensorRef copies{};
};

struct GatedDeltaArgs {
  spec::LinearAttention shape{};
  BatchRows rows{};
  /// f32 [tokens, channels() + values()]: queries, keys and values of all heads, and gates z.
  ConstTensorRef in{};
  /// f32 [tokens, 2 value_heads]: b of all value heads, then a. Destroyed.
  TensorRef rates{};
  ConstTensorRef conv{};           ///< f32 [channels(), kernel], the oldest position first.
  ConstTensorRef fading{};         ///< f32 [value_heads]: A, below 0.
  ConstTensorRef step_bias{};      ///< f32 [value_heads]: dt_bias.
  ConstTensorRef norm{};           ///< f32 [value_dim]
  float eps = 1e-6F;               ///< Of the norm.
  std::vector<DeltaPart> parts{};  ///< Of all key heads, in order.
  /// i32 [sequences, k]: behind so many of its tokens a sequence's state is copied to the block of
  /// that column; ascending, then zeros. Of rank 0: nothing is copied.
  ConstTensorRef copy_behind{};
  TensorRef out{};  ///< f32 or bf16 (rounded) [tokens, values()]
};

/// Linear attention by the gated delta rule (arXiv:2412.06464, Eq. (10)), as Qwen3-Next has it. Of
/// each channel of queries, keys and values x_t first becomes silu(sum_k conv[k] x_{t-kernel+1+k}).
/// Queries and keys are divided by their length, q / sqrt(|q|^2 + 1e-6), and queries by
/// sqrt(key_dim). Then for each value head, with beta = 1 / (1 + exp(-b)) and
/// alpha = exp(A log(1 + exp(a + dt_bias))):
///
///     S_t = alpha S_{t-1} + k_t (beta (v_t - alpha S_{t-1}^T k_t))^T
///     o_t = S_t^T q_t
///     out = norm o_t / sqrt(mean(o_t^2) + eps) silu(z_t)
///
/// A sequence that begins at position 0 has zeros before it, whatever its blocks hold; any other
/// goes on from what its blocks hold, and they hold what comes after its last token then. Tokens
/// are taken one after the other, so the bits do not depend on how a sequence is cut into batches.
/// On CUDA a sequence whose block is the first sequence's repeats that one, in a step that was
/// filled up: it changes no state, and what it gives is of no use. tokens == 0 is a no-op. Shapes
/// and types that do not fit are bugs and CHECK-fail.
void gated_delta(OpContext& context, const GatedDeltaArgs& args);

}  // namespace heddle::ops
