#pragma once

#include "ops/context.h"
#include "ops/paged_kv.h"

namespace heddle::ops {

struct KvAppendArgs {
  BatchRows rows{};
  ConstTensorRef key{};    ///< f32 [tokens, kv_heads, head_dim]
  ConstTensorRef value{};  ///< f32 [tokens, kv_heads, head_dim]
  PagedKv kv{};            ///< The block table has the block of every token of the batch.
};

/// Writes the keys and values of the batch's tokens to their places in the cache, rounded once to
/// its type. No tokens is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void kv_append(OpContext& context, const KvAppendArgs& args);

}  // namespace heddle::ops
