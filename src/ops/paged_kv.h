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
/// head_dim] and values alike at value_offset. Codes in int8 or FP8 have scales: a bfloat16 for
/// each head of a token, which the numbers of its head_dim elements are multiplied with
/// (ops/kv_row.h). Those are [kv_heads, block_tokens] behind all elements of the keys, and of the
/// values.
struct PagedKv {
  std::byte* base = nullptr;
  std::int64_t block_bytes = 0;
  std::int64_t block_tokens = 0;
  std::int64_t key_offset = 0;    ///< Bytes from the start of a block.
  std::int64_t value_offset = 0;  ///< Bytes from the start of a block.
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::kBf16;  ///< float32, bfloat16, or of codes int8 or FP8 (kF8).
  ConstTensorRef table{};  ///< i32 [sequences, blocks]. Entries that no token needs may be junk.

  [[nodiscard]] bool scaled() const { return spec::kv_is_scaled(dtype); }

  /// Bytes of the elements of one head of one token.
  [[nodiscard]] std::int64_t token_stride() const {
    return head_dim * static_cast<std::int64_t>(spec::kv_element_bytes(dtype));
  }
  /// Bytes of those of one head.
  [[nodiscard]] std::int64_t head_stride() const { return block_tokens * token_stride(); }
  /// Bytes from keys, or values, of a block to the scales of one of their heads.
  [[nodiscard]] std::int64_t scale_offset(std::int64_t head) const {
    return kv_heads * head_stride() + head * block_tokens * kScaleBytes;
  }
  /// Bytes of the keys, or the values, of a block.
  [[nodiscard]] std::int64_t side_bytes() const {
    return scaled() ? scale_offset(kv_heads) : kv_heads * head_stride();
  }

  static constexpr std::int64_t kScaleBytes = 2;
};

}  // namespace heddle::ops
