#pragma once

#include "ops/cuda/kernels/batch_params.h"
#include "ops/cuda/kernels/intrinsics.cuh"
#include "ops/cuda/kernels/warp.cuh"

namespace heddle::ops::cuda {

/// The sequence that `row` of a batch is of; `sequences` if of none. All lanes of a warp call it
/// with the same row.
__device__ __forceinline__ std::int32_t sequence_of(const BatchParams& batch, std::int64_t row) {
  if (batch.one_row_each != 0) {
    return row < batch.sequences ? static_cast<std::int32_t>(row) : batch.sequences;
  }
  std::int32_t before = 0;  // Sequences that end at or before the row.
  for (auto s = static_cast<std::int32_t>(lane_index()); s < batch.sequences; s += kWarpThreads) {
    before += batch.begin[s + 1] <= row ? 1 : 0;
  }
  return row < batch.begin[0] ? batch.sequences : warp_sum(before);
}

/// The number of the block that holds a position of a sequence.
__device__ __forceinline__ std::int32_t kv_block(const PagedKvParams& kv,
                                                 std::int32_t sequence,
                                                 std::int32_t position) {
  return kv.table[sequence * kv.table_stride + position / kv.block_tokens];
}

/// Bytes from the keys (or values) of block 0 to those of one head of a position in `block`.
__device__ __forceinline__ std::int64_t kv_offset(const PagedKvParams& kv,
                                                  std::int32_t block,
                                                  std::int32_t position,
                                                  std::int32_t head) {
  const std::int64_t slot =
      static_cast<std::int64_t>(head) * kv.block_tokens + position % kv.block_tokens;
  return block * kv.block_bytes + slot * kv.head_dim * kv.element_bytes;
}

/// The same from the scales of keys (or values) of block 0 to that of one head of a position.
__device__ __forceinline__ std::int64_t kv_scale_offset(const PagedKvParams& kv,
                                                        std::int32_t block,
                                                        std::int32_t position,
                                                        std::int32_t head) {
  const std::int64_t slot =
      static_cast<std::int64_t>(head) * kv.block_tokens + position % kv.block_tokens;
  return block * kv.block_bytes + slot * static_cast<std::int64_t>(sizeof(std::uint16_t));
}
/// Such a scale.
__device__ __forceinline__ float load_kv_scale(const std::byte* scales, std::int64_t offset) {
  return from_bf16(*reinterpret_cast<const std::uint16_t*>(scales + offset));
}

}  // namespace heddle::ops::cuda
