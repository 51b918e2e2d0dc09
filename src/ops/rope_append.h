#pragma once

#include "ops/context.h"
#include "ops/paged_kv.h"

namespace heddle::ops {

struct RopeAppendArgs {
  BatchRows rows{};
  /// f32 [tokens, d], d being how many elements of a head rotate, the first ones: d / 2 cosines,
  /// then as many sines.
  ConstTensorRef cos_sin{};
  // The projections: f32, or bf16 where KernelTable::narrow_from allows and the cache is
  // not f32.
  TensorRef query{};       ///< [tokens, heads, head_dim]. In and out; absent: attention turns them.
  ConstTensorRef key{};    ///< [tokens, kv_heads, head_dim]; not changed.
  ConstTensorRef value{};  ///< [tokens, kv_heads, head_dim]
  PagedKv kv{};            ///< The block table has the block of every token of the batch.
  // Where KernelTable::rope_normalises:
  ConstTensorRef
      query_norm{};           ///< f32 [head_dim]: every query head is rms_norm'ed first; or absent.
  ConstTensorRef key_norm{};  ///< The same for keys; both or neither, where there are queries.
  float eps = 1e-6F;          ///< As RmsNormArgs::eps.
};

/// Makes projections ready for attention, in one pass over them. Queries are turned in place; keys
/// are turned on their way to the cache, where they and the values are written to the places of the
/// batch's tokens, rounded once to its type; codes as ops/kv_row.h says.
///
/// Turning encodes a token's position by rotating pairs of elements. For the pair of elements i and
/// i + d/2 of the d elements of a head that rotate, and the token's angle a_i,
///
///     y_i       = x_i cos(a_i) - x_{i+d/2} sin(a_i)
///     y_{i+d/2} = x_{i+d/2} cos(a_i) + x_i sin(a_i)        for i in [0, d/2)
///
/// J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864,
/// section 3.2.2. The paper pairs neighbours (2i, 2i + 1); checkpoints in Hugging Face layout have
/// their rows permuted so that halves pair up, and pairing wrongly yields fluent but wrong text
/// rather than an error. The angles are the caller's (engine/rope_frequencies.h), computed once per
/// step and shared by all layers; a scale on the rotation is in cos_sin already.
///
/// Within 2^-23 (|x_i| + |x_{i+d/2}|) of the exact value, before keys are rounded. Rows of no
/// sequence are left alone. tokens == 0 is a no-op. Shapes and types that do not fit are bugs and
/// CHECK-fail.
void rope_append(OpContext& context, const RopeAppendArgs& args);

}  // namespace heddle::ops
