#pragma once

#include "ops/cuda/kernels/attention_params.h"
#include "ops/cuda/kernels/batch.cuh"
#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/guest_params.h"

namespace heddle::ops::cuda {

constexpr float kLn2 = 0.693147180559945309F;

/// What one block computes: some rows of a sequence, over some of its positions.
struct AttentionTile {
  std::int32_t sequence;
  std::int32_t row;             ///< The first, within the sequence.
  std::int32_t rows;            ///< None: the block has nothing to do.
  std::int32_t first_position;  ///< Of the sequence's token 0 in this batch.
  std::int32_t split;
  bool partial;        ///< The result is one of several that are merged.
  std::int32_t from;   ///< Positions that any row attends to,
  std::int32_t to;     ///< from this one on and before that one, of this split alone.
  std::int32_t token;  ///< The batch's row of the sequence's token 0.
};

__device__ __forceinline__ std::int32_t rows_of(const AttentionParams& params, std::int32_t s) {
  return (params.batch.begin[s + 1] - params.batch.begin[s]) * params.group;
}

/// The position of a row of a tile, counted from the tile's first.
__device__ __forceinline__ std::int32_t position_of(const AttentionParams& params,
                                                    const AttentionTile& tile,
                                                    std::int32_t row) {
  return tile.first_position + (tile.row + row) / params.group;
}
/// The last position that a row of a tile at `position` attends to there.
__device__ __forceinline__ std::int32_t last_attended(const AttentionTile& tile,
                                                      std::int32_t position) {
  return min(position, tile.to - 1);
}
/// The first position that a row at `position` attends to.
__device__ __forceinline__ std::int32_t first_attended(const AttentionParams& params,
                                                       std::int32_t position) {
  const std::int32_t first = position - params.window + 1;
  return params.window > 0 && first > 0 ? first : 0;
}

/// The score in base 2 of a product of query and key, within the soft cap: c tanh(x) is
/// c - 2 c / (1 + exp(2 x)).
__device__ __forceinline__ float capped(const AttentionParams& params, float product) {
  const float share = reciprocal_fast(1.0F + exp2_fast(product * params.cap_turn));
  return params.cap_log2 - 2.0F * params.cap_log2 * share;
}

/// Whether results of sequences that are split so are partial.
__device__ __forceinline__ bool are_merged(const AttentionParams& params, std::int32_t splits) {
  return splits > 1 || params.parts.present != 0;
}

/// Where the state of a row is to be left.
__device__ __forceinline__ float* left_state(const AttentionParams& params,
                                             std::int64_t token,
                                             std::int32_t head) {
  return params.parts.left + token * params.parts.left_stride +
         static_cast<std::int64_t>(head) * (params.kv.head_dim + 2);
}

/// Whether the row is one that this call is about.
__device__ __forceinline__ bool is_wanted(const AttentionParams& params,
                                          std::int64_t token,
                                          std::int32_t head) {
  return params.parts.only_missing == 0 ||
         left_state(params, token, head)[params.kv.head_dim + 1] == kMissing;
}

/// Fills in what follows from sequence, row and rows. Positions are split in whole steps of kStep.
template <int kStep>
__device__ __forceinline__ void place_tile(const AttentionParams& params,
                                           std::int32_t splits,
                                           AttentionTile& tile) {
  tile.first_position = params.batch.first_position[tile.sequence];
  tile.token = params.batch.begin[tile.sequence];
  if (!is_wanted(params, tile.token, 0)) {
    tile.rows = 0;
    return;
  }
  tile.split = static_cast<std::int32_t>(blockIdx.z);
  tile.partial = are_merged(params, splits);
  std::int32_t from = first_attended(params, position_of(params, tile, 0));
  std::int32_t to = position_of(params, tile, tile.rows - 1) + 1;
  if (params.parts.begin != nullptr) {
    from = max(from, params.parts.begin[tile.sequence]);
  }
  if (params.parts.end != nullptr) {
    to = min(to, params.parts.end[tile.sequence]);
  }
  const std::int32_t steps = to > from ? (to - from + kStep - 1) / kStep : 0;
  const std::int32_t steps_each = (steps + splits - 1) / splits;
  tile.from = from + tile.split * steps_each * kStep;
  tile.to = min(to, tile.from + steps_each * kStep);
}

/// The tile of a block of a narrow kernel.
template <int kStep>
__device__ __forceinline__ AttentionTile narrow_tile(const AttentionParams& params) {
  AttentionTile tile{};
  tile.sequence = static_cast<std::int32_t>(blockIdx.x);
  tile.rows = rows_of(params, tile.sequence);
  if (tile.rows > params.narrow_rows) {
    tile.rows = 0;
    return tile;
  }
  place_tile<kStep>(params, params.narrow_splits, tile);
  return tile;
}

/// The tile of a block of a wide kernel. All lanes of each warp call it.
template <int kRows, int kStep>
__device__ __forceinline__ AttentionTile wide_tile(const AttentionParams& params) {
  AttentionTile tile{};
  // Backwards: late tiles of a long prompt attend to most, and should not be the last to begin.
  auto index = static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x);
  for (std::int32_t first = 0; first < params.batch.sequences; first += kWarpThreads) {
    const std::int32_t s = first + static_cast<std::int32_t>(lane_index());
    const std::int32_t rows = s < params.batch.sequences ? rows_of(params, s) : 0;
    const std::int32_t own = rows > params.narrow_rows ? (rows + kRows - 1) / kRows : 0;
    std::int32_t until = own;  // Tiles of this sequence and of those of lower lanes.
    for (unsigned delta = 1; delta < kWarpThreads; delta *= 2) {
      const std::int32_t before = shuffle_up(until, delta);
      until += lane_index() >= delta ? before : 0;
    }
    const unsigned past = warp_ballot(until > index);
    if (past != 0) {
      const unsigned winner = lowest_bit(past);
      tile.sequence = first + static_cast<std::int32_t>(winner);
      tile.row = (index - shuffle(until - own, winner)) * kRows;
      tile.rows = min(kRows, shuffle(rows, winner) - tile.row);
      place_tile<kStep>(params, params.wide_splits, tile);
      return tile;
    }
    index -= shuffle(until, kWarpThreads - 1);
  }
  return tile;
}

/// Where the results of a row of a tile go.
struct AttentionRow {
  std::int64_t token;  ///< The batch's row.
  std::int32_t head;   ///< The query head.
};
__device__ __forceinline__ AttentionRow target_of(const AttentionParams& params,
                                                  const AttentionTile& tile,
                                                  std::int32_t row) {
  const std::int32_t at = tile.row + row;
  const std::int32_t token = at / params.group;
  const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
  return {.token = tile.token + token,
          .head = kv_head * params.group + (at - token * params.group)};
}

/// The place of a row among those of all splits.
__device__ __forceinline__ std::int64_t partial_index(const AttentionParams& params,
                                                      std::int64_t split,
                                                      const AttentionRow& row) {
  return (split * params.tokens + row.token) * params.heads + row.head;
}

/// Counts the sink of a head among a row's scores, if it has one: `max` of the scores, in base 2,
/// and the `sum` of 2^(score - max). Returns what the sums of values by weight are multiplied with.
__device__ __forceinline__ float count_sink(const AttentionParams& params,
                                            std::int32_t head,
                                            float& max,
                                            float& sum) {
  if (params.sinks == nullptr) {
    return 1.0F;
  }
  constexpr float kLog2Of = 1.44269504088896340736F;  // log2(e)
  const float sink = params.sinks[head] * kLog2Of;
  const float before = max;
  max = fmaxf(before, sink);
  const float shrink = exp2_fast(before - max);
  sum = fmaf(sum, shrink, exp2_fast(sink - max));
  return shrink;
}

/// Hands on the state of a row once for all of its elements: `max` of the scores, in base 2, and
/// the `sum` of 2^(score - max).
__device__ __forceinline__ void write_state(const AttentionParams& params,
                                            const AttentionTile& tile,
                                            const AttentionRow& row,
                                            float max,
                                            float sum) {
  if (tile.partial) {
    float* state = params.partial_state + 2 * partial_index(params, tile.split, row);
    state[0] = max;
    state[1] = sum;
  } else if (params.lse != nullptr) {
    params.lse[row.token * params.lse_stride + row.head] = (max + log2f(sum)) * kLn2;
  }
}

/// Writes element i of a row, given as the sum of values by weight.
__device__ __forceinline__ void write_element(const AttentionParams& params,
                                              const AttentionTile& tile,
                                              const AttentionRow& row,
                                              std::int32_t i,
                                              float weighted,
                                              float sum) {
  const std::int64_t at = static_cast<std::int64_t>(row.head) * params.kv.head_dim + i;
  if (tile.partial) {
    params.partial_out[partial_index(params, tile.split, row) * params.kv.head_dim + i] = weighted;
  } else if (params.out_bf16 != 0) {
    static_cast<std::uint16_t*>(params.out)[row.token * params.out_stride + at] =
        to_bf16(weighted / sum);
  } else {
    static_cast<float*>(params.out)[row.token * params.out_stride + at] = weighted / sum;
  }
}

/// The same for elements i and i + 1, where pairs are aligned.
__device__ __forceinline__ void write_pair(const AttentionParams& params,
                                           const AttentionTile& tile,
                                           const AttentionRow& row,
                                           std::int32_t i,
                                           float2 weighted,
                                           float sum) {
  const std::int64_t at =
      row.token * params.out_stride + static_cast<std::int64_t>(row.head) * params.kv.head_dim + i;
  if (tile.partial) {
    const std::int64_t index = partial_index(params, tile.split, row);
    *reinterpret_cast<float2*>(params.partial_out + index * params.kv.head_dim + i) = weighted;
    return;
  }
  const float inverse = 1.0F / sum;  // The same of all pairs of a row: one division.
  const float2 result = make_float2(weighted.x * inverse, weighted.y * inverse);
  if (params.out_bf16 != 0) {
    *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(params.out) + at) =
        to_bf16_pair(result.x, result.y);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(params.out) + at) = result;
  }
}

}  // namespace heddle::ops::cuda
