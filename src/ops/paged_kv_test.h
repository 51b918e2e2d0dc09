#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/kv_row.h"
#include "ops/op_test.h"
#include "ops/paged_kv.h"

namespace heddle::ops {

/// A small paged cache in host memory, for tests: blocks in random order among others that hold
/// NaN, so that reading anything but what a table says shows.
class PagedKvFixture {
 public:
  struct Shape {
    std::int64_t kv_heads = 1;
    std::int64_t head_dim = 8;
    std::int64_t block_tokens = 16;
    DType dtype = DType::kF32;
  };

  /// Room for sequences of those lengths.
  PagedKvFixture(const Shape& shape, const std::vector<std::int64_t>& lengths, Rng& rng)
      : shape_(shape), sequences_(static_cast<std::int64_t>(lengths.size())) {
    std::int64_t blocks = 0;
    for (const std::int64_t length : lengths) {
      width_ = std::max(width_, (length + shape.block_tokens - 1) / shape.block_tokens);
    }
    blocks = 2 * sequences_ * width_ + 1;
    memory_.assign(static_cast<std::size_t>(blocks * block_bytes()), std::byte{0xff});
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(blocks));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<std::int32_t>(i);
      std::swap(numbers[i], numbers[rng.below(i + 1)]);
    }
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const std::int64_t own =
          (lengths[static_cast<std::size_t>(s)] + shape.block_tokens - 1) / shape.block_tokens;
      for (std::int64_t i = 0; i < width_; ++i) {
        const auto at = static_cast<std::size_t>(s * width_ + i);
        table_.push_back(i < own ? numbers[at] : -1);
      }
    }
  }

  [[nodiscard]] PagedKv kv() {
    return {
        .base = memory_.data(),
        .block_bytes = block_bytes(),
        .block_tokens = shape_.block_tokens,
        .key_offset = layer_bytes(),  // The second layer of three.
        .value_offset = layer_bytes() + side_bytes(),
        .kv_heads = shape_.kv_heads,
        .head_dim = shape_.head_dim,
        .dtype = shape_.dtype,
        .table = matrix_of(static_cast<const std::int32_t*>(table_.data()), sequences_, width_)};
  }

  /// Has the key and value of one position, of all heads, as they are.
  void put(std::int64_t s, std::int64_t position, const float* key, const float* value) {
    if (layout().scaled()) {
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
        for (const bool of_value : {false, true}) {
          put_kv_row(shape_.dtype,
                     (of_value ? value : key) + head * shape_.head_dim,
                     shape_.head_dim,
                     memory_.data() + row(s, position, head, of_value),
                     memory_.data() + scale(s, position, head, of_value));
        }
      }
      return;
    }
    for (std::int64_t at = 0; at < shape_.kv_heads * shape_.head_dim; ++at) {
      for (const bool of_value : {false, true}) {
        const float element = of_value ? value[at] : key[at];
        std::byte* const place =
            memory_.data() + row(s, position, at / shape_.head_dim, of_value) +
            at % shape_.head_dim * static_cast<std::int64_t>(spec::dtype_bytes(shape_.dtype));
        if (shape_.dtype == DType::kF32) {
          std::memcpy(place, &element, sizeof(element));
        } else {
          const std::uint16_t rounded_element = to_bf16(element);
          std::memcpy(place, &rounded_element, sizeof(rounded_element));
        }
      }
    }
  }

  /// Element i of the key (or value) of one head of one position.
  [[nodiscard]] float at(
      std::int64_t s, std::int64_t position, std::int64_t head, std::int64_t i, bool value) const {
    const std::byte* const place = memory_.data() + row(s, position, head, value);
    return layout().scaled()
               ? kv_row_at(shape_.dtype, place, memory_.data() + scale(s, position, head, value), i)
           : shape_.dtype == DType::kF32
               ? reinterpret_cast<const float*>(place)[i]
               : from_bf16(reinterpret_cast<const std::uint16_t*>(place)[i]);
  }

  /// Entries of the block table of one sequence.
  [[nodiscard]] std::int32_t* table_row(std::int64_t s) {
    return &table_[static_cast<std::size_t>(s * width_)];
  }
  [[nodiscard]] const std::vector<std::byte>& memory() const { return memory_; }

 private:
  /// Bytes to the key (or value) of one head of one position.
  [[nodiscard]] std::int64_t row(std::int64_t s,
                                 std::int64_t position,
                                 std::int64_t head,
                                 bool value) const {
    return side(s, position, value) + head * layout().head_stride() +
           position % shape_.block_tokens * layout().token_stride();
  }
  /// Bytes to its scale, where there are any.
  [[nodiscard]] std::int64_t scale(std::int64_t s,
                                   std::int64_t position,
                                   std::int64_t head,
                                   bool value) const {
    return side(s, position, value) + layout().scale_offset(head) +
           position % shape_.block_tokens * PagedKv::kScaleBytes;
  }
  /// Bytes to the keys (or values) of the block of a position.
  [[nodiscard]] std::int64_t side(std::int64_t s, std::int64_t position, bool value) const {
    const std::int32_t block =
        table_[static_cast<std::size_t>(s * width_ + position / shape_.block_tokens)];
    return block * block_bytes() + layer_bytes() + (value ? side_bytes() : 0);
  }
  [[nodiscard]] const PagedKv& layout() const { return layout_; }
  /// Of codes up to a multiple of 16, as memory::KvGeometry has it.
  [[nodiscard]] std::int64_t side_bytes() const { return side_bytes_; }
  [[nodiscard]] std::int64_t layer_bytes() const { return 2 * side_bytes(); }
  [[nodiscard]] std::int64_t block_bytes() const { return 3 * layer_bytes() + 64; }

  Shape shape_;
  PagedKv layout_{.block_tokens = shape_.block_tokens,
                  .kv_heads = shape_.kv_heads,
                  .head_dim = shape_.head_dim,
                  .dtype = shape_.dtype};  ///< Asked for each number that a test looks at.
  std::int64_t side_bytes_ =
      layout_.scaled() ? (layout_.side_bytes() + 15) / 16 * 16 : layout_.side_bytes();
  std::int64_t sequences_;
  std::int64_t width_ = 0;
  std::vector<std::byte> memory_{};
  std::vector<std::int32_t> table_{};
};

}  // namespace heddle::ops
