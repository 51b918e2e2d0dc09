#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops::cuda {

/// ops::BatchRows as kernels take them.
struct BatchParams {
  const std::int32_t* begin;           ///< [sequences + 1]
  const std::int32_t* first_position;  ///< [sequences]
  std::int32_t sequences;
  std::int32_t one_row_each;  ///< Not 0: row i is the only one of sequence i.
};

/// ops::PagedKv as kernels take it.
struct PagedKvParams {
  std::byte* keys;    ///< Of block 0.
  std::byte* values;  ///< Of block 0.
  std::int64_t block_bytes;
  const std::int32_t* table;
  std::int64_t table_stride;
  std::int32_t block_tokens;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t bf16;  ///< 0: float32.
};

}  // namespace heddle::ops::cuda
