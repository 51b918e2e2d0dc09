#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct GatherRowsArgs {
  ConstTensorRef table{};  ///< f32 or bf16 [entries, columns], contiguous.
  ConstTensorRef rows{};   ///< i32 [n], each in [0, entries): the caller has checked.
  TensorRef out{};         ///< f32 [n, columns]. Does not overlap `table`.
};

/// out[i] = table[rows[i]]: the embedding of token ids, and the picking of the rows that sample.
/// Exact. n == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void gather_rows(OpContext& context, const GatherRowsArgs& args);

}  // namespace heddle::ops
