#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace heddle::memory {

/// What one rank caches per token: keys and values of `layers` layers.
struct KvShape {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::size_t element_bytes = 0;
  std::size_t scale_bytes = 0;  ///< Of each head of a token, beside its elements.
};

/// How the KV of a group of layers lies in pages: block-major, a block holding `block_tokens`
/// tokens of all layers of the group,
///
///     block[layer][k, v][kv_head][token][head_dim]
///
/// or, where heads of a token have scales, with [kv_head][token] scales behind the elements of each
/// [layer][k, v], up to a multiple of 16 bytes, as kernels move so many at once; and a page holding
/// `blocks_per_page` blocks one after the other. Bytes throughout.
struct KvGeometry {
  KvShape shape{};                    ///< Of this group.
  std::int64_t block_tokens = 0;      ///< T; need not be a power of two.
  std::uint32_t blocks_per_page = 0;  ///< n; a power of two.
  std::size_t block_bytes = 0;        ///< page / n; a block's start is aligned to it.

  /// The elements of one head of one token.
  [[nodiscard]] std::size_t token_stride() const {
    return static_cast<std::size_t>(shape.head_dim) * shape.element_bytes;
  }
  [[nodiscard]] std::size_t head_stride() const {
    return static_cast<std::size_t>(block_tokens) * token_stride();
  }
  /// From the keys (or values) of one layer to their scales.
  [[nodiscard]] std::size_t scale_offset() const {
    return static_cast<std::size_t>(shape.kv_heads) * head_stride();
  }
  /// From keys to values of one layer.
  [[nodiscard]] std::size_t value_offset() const {
    constexpr std::size_t kAligned = 16;
    const std::size_t scales =
        static_cast<std::size_t>(shape.kv_heads * block_tokens) * shape.scale_bytes;
    return scales == 0 ? scale_offset()
                       : (scale_offset() + scales + kAligned - 1) / kAligned * kAligned;
  }
  [[nodiscard]] std::size_t layer_stride() const { return 2 * value_offset(); }
  /// One token in all layers of the group.
  [[nodiscard]] std::size_t token_bytes() const {
    return 2 * static_cast<std::size_t>(shape.layers * shape.kv_heads) *
           (token_stride() + shape.scale_bytes);
  }
  /// Blocks that `tokens` tokens need.
  [[nodiscard]] std::int64_t blocks_for(std::int64_t tokens) const {
    return (tokens + block_tokens - 1) / block_tokens;
  }
  /// Pages that `tokens` tokens need when they are alone on their pages.
  [[nodiscard]] std::int64_t pages_for(std::int64_t tokens) const {
    return (blocks_for(tokens) + blocks_per_page - 1) / blocks_per_page;
  }
};

/// Layers [first_layer, first_layer + geometry.shape.layers) of a shape, with pages and block
/// tables of their own.
struct KvGroup {
  std::int64_t first_layer = 0;
  KvGeometry geometry{};
};

/// Lays out the KV of `shape` in pages of `page_bytes` (a power of two). One group, unless a token
/// would need more than 128 KiB or a page: then the fewest groups, of even size, that need less; a
/// layer is never split. Blocks are the smallest that hold 16 tokens (so 16 to 31), or the page
/// where it holds fewer. kInvalidArgument when a page does not hold one token of one layer, or a
/// dimension is not positive.
Result<std::vector<KvGroup>> kv_groups(const KvShape& shape, std::size_t page_bytes);

}  // namespace heddle::memory
