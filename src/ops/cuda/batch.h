#pragma once

#include "ops/checks.h"
#include "ops/cuda/kernels/batch_params.h"
#include "ops/cuda/launch.h"
#include "ops/paged_kv.h"

namespace heddle::ops::cuda {

/// A batch of `tokens` rows as kernels take it. Each sequence has at least one row, so that a batch
/// of as many rows as sequences has one of each.
[[nodiscard]] inline BatchParams batch_params(const BatchRows& rows, std::int64_t tokens) {
  return {.begin = rows.begin.as<std::int32_t>(),
          .first_position = rows.first_position.as<std::int32_t>(),
          .sequences = static_cast<std::int32_t>(rows.sequences()),
          .one_row_each = tokens == rows.sequences() ? 1 : 0};
}

/// CHECK-fails where kernels know no keys and values of that type.
[[nodiscard]] inline PagedKvParams paged_kv_params(const PagedKv& kv) {
  if (!kv.scaled()) {
    check_floating(kv.dtype);
  }
  std::byte* const keys = kv.base + kv.key_offset;
  std::byte* const values = kv.base + kv.value_offset;
  return {.keys = keys,
          .values = values,
          .key_scales = kv.scaled() ? keys + kv.scale_offset(0) : nullptr,
          .value_scales = kv.scaled() ? values + kv.scale_offset(0) : nullptr,
          .block_bytes = kv.block_bytes,
          .table = kv.table.as<std::int32_t>(),
          .table_stride = kv.table.stride[0],
          .block_tokens = static_cast<std::int32_t>(kv.block_tokens),
          .kv_heads = static_cast<std::int32_t>(kv.kv_heads),
          .head_dim = static_cast<std::int32_t>(kv.head_dim),
          .element_bytes = static_cast<std::int32_t>(spec::kv_element_bytes(kv.dtype)),
          .codes = kv.dtype == DType::kI8   ? kInt8Codes
                   : kv.dtype == DType::kF8 ? kE4m3Codes
                                            : kNoCodes};
}

/// Whether the elements of every head of every position can be moved `count` at a time.
[[nodiscard]] inline bool kv_moves_by(std::int64_t count, const PagedKv& kv) {
  const std::int64_t bytes = count * static_cast<std::int64_t>(spec::kv_element_bytes(kv.dtype));
  const auto begins = [&](std::int64_t offset) {
    return reinterpret_cast<std::uintptr_t>(kv.base + offset) %
               static_cast<std::uintptr_t>(bytes) ==
           0;
  };
  return begins(kv.key_offset) && begins(kv.value_offset) && kv.head_dim % count == 0 &&
         kv.block_bytes % bytes == 0;
}

}  // namespace heddle::ops::cuda
