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

/// What codes of keys and values are; kNoCodes: they are floats.
constexpr std::int32_t kNoCodes = 0;
constexpr std::int32_t kInt8Codes = 1;
constexpr std::int32_t kE4m3Codes = 2;

/// ops::PagedKv as kernels take it.
struct PagedKvParams {
  std::byte* keys;        ///< Of block 0.
  std::byte* values;      ///< Of block 0.
  std::byte* key_scales;  ///< Of codes: those of block 0.
  std::byte* value_scales;
  std::int64_t block_bytes;
  const std::int32_t* table;
  std::int64_t table_stride;
  std::int32_t block_tokens;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t element_bytes;  ///< 4: float32; 2: bfloat16; 1: codes.
  std::int32_t codes;          ///< kNoCodes, kInt8Codes or kE4m3Codes.
};

}  // namespace heddle::ops::cuda
