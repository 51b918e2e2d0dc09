#pragma once

#include "ops/context.h"
#include "ops/paged_kv.h"

namespace heddle::ops {

/// The largest head_dim that kernels take.
constexpr std::int64_t kAttentionHeadDimMax = 512;  // On GPUs 256.

/// Attention in two parts, over the positions before a border and from it on, each where its part
/// of the cache is (WEAVER). Without a window.
///
/// The first part leaves for each row a state of head_dim + 2 numbers: sum_j exp(score_j - largest)
/// v_j, the largest score, and the sum of the weights. The second goes on with it. On CPUs it gives
/// the bits that one call over all positions gives; on CUDA it is as near the exact value as that.
struct AttentionParts {
  ConstTensorRef begin{};  ///< i32 [sequences]: attend from there on; absent: from position 0.
  ConstTensorRef end{};    ///< i32 [sequences]: attend to what is before it; absent: to all.
  ConstTensorRef
      resumed{};     ///< f32 [tokens, heads, head_dim + 2], where `begin` is not 0; or absent.
  TensorRef left{};  ///< f32 [tokens, heads, head_dim + 2], written in place of out; or absent.

  [[nodiscard]] bool present() const { return begin.present() || end.present(); }
};

/// Borders of AttentionParts are multiples of this: on CPUs of what the instruction set that runs
/// sums at once. On CUDA they could be anywhere.
[[nodiscard]] std::int64_t attention_border(device::Kind kind = device::Kind::kCpu);

/// What is left to do with queries that come as they were projected: a norm of each head, and the
/// turn by its token's angles, both as RopeAppendArgs has them.
struct QueryTurn {
  ConstTensorRef cos_sin{};  ///< f32 [tokens, head_dim]; absent: queries are turned.
  ConstTensorRef norm{};     ///< f32 [head_dim], or absent.
  float eps = 1e-6F;
};

struct AttentionArgs {
  BatchRows rows{};
  /// [tokens, heads, head_dim]; heads a multiple of kv.kv_heads. f32, or bf16 where
  /// KernelTable::narrow_from allows and the cache is not f32.
  ConstTensorRef query{};
  PagedKv kv{};             ///< Holds all positions that the batch's tokens attend to.
  std::int64_t window = 0;  ///< Newest positions that a token attends to, itself included; 0: all.
  /// A token attends to no later ones; else to all of its sequence's that the batch has, and to
  /// those before. CPUs alone have it otherwise, without window and parts.
  bool causal = true;
  float scale = 1.0F;      ///< On the scores; 1 / sqrt(head_dim) as a rule.
  float soft_cap = 0.0F;   ///< Keeps scaled scores within; 0: none.
  ConstTensorRef sinks{};  ///< f32 [heads], or absent.
  TensorRef out{};         ///< f32 or bf16 (rounded) [tokens, heads, head_dim]
  TensorRef lse{};         ///< f32 [tokens, heads], or absent.
  AttentionParts parts{};  ///< All positions in one call where it is empty.
  QueryTurn turn{};        ///< Where attention_turns() allows.
};

/// Whether attention() does what `args.turn` has, on the queries' way: a pass over them less.
[[nodiscard]] bool attention_turns(const OpContext& context, const AttentionArgs& args);

/// Attention of the batch's tokens over their sequences' cached keys and values. A token at
/// position p attends to positions P = (max(0, p - window + 1) .. p), or where it is not causal to
/// (0 .. the last position of its sequence):
///
///     score_j = scale q . k_j,    lse = log(sum_{j in P} exp(score_j))
///     out     = sum_{j in P} exp(score_j - lse) v_j
///
/// With a soft cap c a score s, once scaled, is c tanh(s / c). With sinks exp(sinks[h]) is in the
/// sum of query head h as well (G. Xiao et al., "Efficient Streaming Language Models with Attention
/// Sinks", arXiv:2309.17453, as gpt-oss learns them): behind all positions, so not in what the
/// first of AttentionParts leaves.
///
/// Query head h reads key/value head h / (heads / kv_heads) (grouped-query attention; J. Ainslie et
/// al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
/// arXiv:2305.13245). With lse, partial results over disjoint sets of positions can be merged.
///
/// Decode and prefill alike. On a CPU a token's bits depend on its own query and the cached
/// positions it attends to, and on nothing else of the batch, the chunking, the blocks or the
/// threads. On CUDA they depend, beside that, on the shapes of the batch and the device, but never
/// on chance. Within 2e-6 max_j |v_j| (1 + max_j |score_j|) of the exact value. Over keys that are
/// not float32, whose head_dim is a multiple of 32, queries and the weights of values may be
/// rounded to bfloat16 as well, and what codes stand for: then within 2^-8 max_j |v_j| (1 + max_j
/// sum_i |scale q_i k_ji|), or over codes twice as far. `lse` is as near, without the factor |v|. A
/// soft cap c adds 2^-20 c to what a score may be off. head_dim is at most kAttentionHeadDimMax. No
/// tokens is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void attention(OpContext& context, const AttentionArgs& args);

}  // namespace heddle::ops
