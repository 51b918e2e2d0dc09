#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/tensor_ref.h"

namespace heddle::ops {

/// Which rows of a batch are whose: the tokens of a sequence stand together, in order, and their
/// positions are consecutive. At least one token each.
struct BatchRows {
  ConstTensorRef begin{};           ///< i32 [sequences + 1]: rows [begin[s], begin[s + 1]) are s's.
  ConstTensorRef first_position{};  ///< i32 [sequences]: of row begin[s], within its sequence.

  [[nodiscard]] std::int64_t sequences() const { return first_position.shape[0]; }
};

/// The keys and values of one layer in a cache of blocks. Position p of sequence s is in slot
/// p % block_tokens of block `table[s][p / block_tokens]`, and block number n begins n *
/// block_bytes after `base`. Within a block, keys are at key_offset [kv_heads, block_tokens,
/// head_dim] and values alike at value_offset. In int8 a scale, a bfloat16, follows the head_dim
/// elements of each head of a token, each of which stands for itself times the scale
/// (ops/kv_row.h).
struct PagedKv {
  std::byte* base = nullptr;
  std::int64_t block_bytes = 0;
  std::int64_t block_tokens = 0;
  std::int64_t key_offset = 0;    ///< Bytes from the start of a block.
  std::int64_t value_offset = 0;  ///< Bytes from the start of a block.
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::kBf16;  ///< float32 or bfloat16; on CPUs int8 as well.
  ConstTensorRef table{};  ///< i32 [sequences, blocks]. Entries that no token needs may be junk.

  /// Bytes of one head of one token.
  [[nodiscard]] std::int64_t token_stride() const {
    return static_cast<std::int64_t>(spec::kv_row_bytes(dtype, head_dim));
  }
};

}  // namespace heddle::ops
