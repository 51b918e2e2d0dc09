#pragma once

#include "ops/cuda/kernels/attention.cuh"
#include "ops/cuda/kernels/last_block.cuh"

namespace heddle::ops::cuda {

constexpr float kLog2E = 1.44269504088896340736F;

/// Sums, the largest score in base 2 and the sum of weights that a row has from somewhere.
struct MergeState {
  const float* sums;
  float max;
  float sum;
};

/// What is left to row `row` of positions before those of this call.
__device__ inline MergeState resumed_state(const AttentionParams& params,
                                           const AttentionRow& row,
                                           std::int32_t sequence) {
  const std::int32_t d = params.kv.head_dim;
  if (params.parts.resumed == nullptr || params.parts.begin[sequence] == 0) {
    return {.sums = nullptr, .max = -INFINITY, .sum = 0.0F};
  }
  const float* state = params.parts.resumed + row.token * params.parts.resumed_stride +
                       static_cast<std::int64_t>(row.head) * (d + 2);
  return {.sums = state, .max = state[d] * kLog2E, .sum = state[d + 1]};
}

/// One head of one token, by one warp. Lane z has the state of split z.
__device__ inline void merge(const AttentionParams& params,
                             const AttentionRow& row,
                             std::int32_t sequence,
                             std::int32_t splits) {
  const std::int32_t d = params.kv.head_dim;
  const auto z = static_cast<std::int32_t>(lane_index());
  float max = -INFINITY;
  float sum = 0.0F;
  if (z < splits) {
    const float* state = params.partial_state + 2 * partial_index(params, z, row);
    max = state[0];
    sum = state[1];
  }
  const MergeState before = resumed_state(params, row, sequence);
  const float max_all = fmaxf(warp_max(max), before.max);
  const float weight = sum > 0.0F ? exp2_fast(max - max_all) : 0.0F;
  const float weight_before = before.sum > 0.0F ? exp2_fast(before.max - max_all) : 0.0F;
  const float sum_all = fmaf(before.sum, weight_before, warp_sum(sum * weight));
  float* left = params.parts.left == nullptr ? nullptr : left_state(params, row.token, row.head);
  const AttentionTile whole{};
  float max_end = max_all;
  float sum_end = sum_all;
  const float shrink = left == nullptr ? count_sink(params, row.head, max_end, sum_end) : 1.0F;
  if (z == 0 && left != nullptr) {
    left[d] = max_all * kLn2;
    left[d + 1] = sum_all;
  }
  if (z == 0) {
    write_state(params, whole, row, max_end, sum_end);
  }
  for (std::int32_t first = 0; first < d; first += kWarpThreads) {
    const std::int32_t i = first + z;
    float weighted = weight_before > 0.0F && i < d ? weight_before * before.sums[i] : 0.0F;
    for (std::int32_t split = 0; split < splits; ++split) {
      const float share = shuffle(weight, static_cast<unsigned>(split));
      if (share > 0.0F && i < d) {  // Others have left nothing.
        const std::int64_t at = partial_index(params, split, row) * d + i;
        weighted = fmaf(share, params.partial_out[at], weighted);
      }
    }
    if (i < d && left != nullptr) {
      left[i] = weighted;
    } else if (i < d) {
      write_element(params, whole, row, i, weighted * shrink, sum_end);
    }
  }
}

/// At the end of a narrow kernel, by all of its threads: the last block of a tile's splits puts
/// together what they left.
template <int kThreads>
__device__ __forceinline__ void merge_narrow(const AttentionParams& params,
                                             const AttentionTile& tile) {
  if (params.counters == nullptr) {
    return;
  }
  // What the block had there is done with, and static memory beside it may be too much for it.
  HEDDLE_DYNAMIC_SHARED(memory);
  auto& count = *reinterpret_cast<std::int32_t*>(memory);
  std::int32_t* counter =
      params.counters + static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  if (!is_last_block(counter, params.narrow_splits, count)) {
    return;
  }
  constexpr int kWarps = kThreads / static_cast<int>(kWarpThreads);
  for (auto row = static_cast<std::int32_t>(threadIdx.x / kWarpThreads); row < tile.rows;
       row += kWarps) {
    merge(params, target_of(params, tile, row), tile.sequence, params.narrow_splits);
  }
}

}  // namespace heddle::ops::cuda
