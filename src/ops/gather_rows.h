#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct GatherRowsArgs {
  /// f32 or bf16 [entries, columns], contiguous; or blocks in panels (spec/block_panels.h).
  ConstTensorRef table{};
  ConstTensorRef rows{};   ///< i32 [n]
  std::int64_t first = 0;  ///< Which row the table begins with, where it is part of a larger one.
  TensorRef out{};         ///< f32 [n, columns]. Does not overlap `table`.
};

/// out[i] = table[rows[i] - first], or zeros where the table does not have that row: the embedding
/// of token ids, and the picking of the rows that sample. Exact, of blocks too: what gguf::decode()
/// makes of them. n == 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void gather_rows(OpContext& context, const GatherRowsArgs& args);

}  // namespace heddle::ops
