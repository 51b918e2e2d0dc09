#pragma once

#include "ops/cuda/kernels/attention.cuh"
#include "ops/cuda/kernels/attention_shape.h"

// Attention on tensor cores over keys and values in bfloat16. A block goes through its positions
// kStep at a time, the next step's keys and values on their way meanwhile. Each warp holds sixteen
// rows as one tile of the tensor cores: in a wide kernel four warps hold other rows and share all
// positions; in a narrow one all warps hold the same rows, share the positions of a step among them
// and put their results together in the end.
//
// A lane holds elements of rows g = lane / 4 and g + 8 of its warp's tile, called its rows 0 and 1
// here, in columns 2t and 2t + 1 of every eight, t = lane % 4 (intrinsics.cuh, mma_bf16).

namespace heddle::ops::cuda {

/// One block at work.
template <class Shape>
class MmaAttention {
 public:
  __device__ __forceinline__ MmaAttention(const AttentionParams& params,
                                          const AttentionTile& tile,
                                          std::byte* memory)
      : params_(params),
        tile_(tile),
        stages_(memory),
        queries_(reinterpret_cast<uint4*>(memory + 2 * Shape::kStageBytes)),
        places_(
            reinterpret_cast<std::int64_t*>(memory + 2 * Shape::kStageBytes + Shape::kQueryBytes)),
        warp_(static_cast<int>(threadIdx.x / kWarpThreads)) {}

  __device__ __forceinline__ void run() {
    const std::int32_t steps = (tile_.to - tile_.from + Shape::kStep - 1) / Shape::kStep;
    place_rows();
    load_query();
    place_step(0, block_of(0));
    __syncthreads();
    if (steps > 0) {
      begin_step(0);
    }
    place_step(1, block_of(1));
    for (std::int32_t step = 0; step < steps; ++step) {
      copy_async_wait<0>();
      __syncthreads();  // The step is there, and nobody reads the one before any more.
      if (step + 1 < steps) {
        begin_step(step + 1);
      }
      const std::int32_t block = block_of(step + 2);  // Comes while the step is computed.
      attend(step);
      place_step(step + 2, block);
    }
    sum_[0] = quad_sum(sum_[0]);
    sum_[1] = quad_sum(sum_[1]);
    if constexpr (Shape::kPositionWarps == 1) {
      write_own();
    } else {
      write_together();
    }
  }

 private:
  static constexpr int kTiles = Shape::kHeadDim / 8;  ///< Of eight columns of a result.
  static constexpr int kDepth = Shape::kHeadDim / 16;
  static constexpr int kScoreTiles = Shape::kWarpStep / 8;

  static __device__ __forceinline__ int g() { return static_cast<int>(lane_index()) / 4; }
  static __device__ __forceinline__ int t() { return static_cast<int>(lane_index()) % 4; }
  /// Over the four lanes that hold a row.
  static __device__ __forceinline__ float quad_sum(float value) {
    value += shuffle_xor(value, 1U);
    return value + shuffle_xor(value, 2U);
  }
  static __device__ __forceinline__ float quad_max(float value) {
    value = fmaxf(value, shuffle_xor(value, 1U));
    return fmaxf(value, shuffle_xor(value, 2U));
  }

  __device__ __forceinline__ int row_warp() const { return warp_ / Shape::kPositionWarps; }
  __device__ __forceinline__ int position_warp() const { return warp_ % Shape::kPositionWarps; }
  /// The tile's row that is the lane's row `half`.
  __device__ __forceinline__ int row(int half) const { return row_warp() * 16 + g() + half * 8; }

  /// Elements `at` and `at` + 1 of the queries.
  __device__ __forceinline__ std::uint32_t query_pair(std::int64_t at) const {
    if (params_.query_bf16 != 0) {
      return *reinterpret_cast<const std::uint32_t*>(
          static_cast<const std::uint16_t*>(params_.query) + at);
    }
    const float2 pair =
        *reinterpret_cast<const float2*>(static_cast<const float*>(params_.query) + at);
    return to_bf16_pair(pair.x, pair.y);
  }

  /// Hands on the lane's queries in columns 16 k and on, as a multiplication takes them.
  __device__ __forceinline__ void keep_query(int k, const std::uint32_t (&parts)[4]) {
    if constexpr (Shape::kQueryShared) {
      if (position_warp() == 0) {
        queries_[(row_warp() * kDepth + k) * 32 + static_cast<int>(lane_index())] =
            make_uint4(parts[0], parts[1], parts[2], parts[3]);
      }
    } else {
      for (int i = 0; i < 4; ++i) {
        query_[k][i] = parts[i];
      }
    }
  }

  /// Which positions all rows of the warp attend to.
  __device__ __forceinline__ void place_rows() {
    const int top = row_warp() * 16;
    const int bottom = min(top + 16, tile_.rows) - 1;
    all_from_ = first_attended(params_, position_of(params_, tile_, bottom));
    all_to_ = last_attended(tile_, position_of(params_, tile_, top));
  }

  /// Where the lane's rows of queries are; -1: there is none.
  __device__ __forceinline__ void place_query(std::int64_t (&rows)[2],
                                              std::int64_t (&tokens)[2]) const {
    for (int half = 0; half < 2; ++half) {
      rows[half] = -1;
      tokens[half] = 0;
      if (row(half) < tile_.rows) {
        const AttentionRow at = target_of(params_, tile_, row(half));
        rows[half] = at.token * params_.query_stride + at.head * Shape::kHeadDim;
        tokens[half] = at.token;
      }
    }
  }

  __device__ __forceinline__ void load_query() {
    std::int64_t rows[2];
    std::int64_t tokens[2];
    place_query(rows, tokens);
    if (params_.turn.cos_sin != nullptr) {
      load_turned(rows, tokens);
      return;
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      std::uint32_t parts[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts[i] = rows[i % 2] < 0 ? 0 : query_pair(rows[i % 2] + k * 16 + i / 2 * 8 + 2 * t());
      }
      keep_query(k, parts);
    }
  }

  /// Two elements of queries in bfloat16, widened.
  __device__ __forceinline__ float2 query_floats(std::int64_t at) const {
    const std::uint32_t pair = query_pair(at);
    return make_float2(bf16_low(pair), bf16_high(pair));
  }

  /// What heads are multiplied with to be normalised, but for weights. All lanes of a row call it.
  __device__ __forceinline__ float norm_scale(std::int64_t place) const {
    float squares = 0.0F;
    for (int i = 0; i < 2 * kDepth && place >= 0; ++i) {
      const float2 x = query_floats(place + i * 8 + 2 * t());
      squares += x.x * x.x + x.y * x.y;
    }
    return 1.0F / sqrtf(quad_sum(squares) / static_cast<float>(Shape::kHeadDim) + params_.turn.eps);
  }

  /// Queries as they were projected, normalised and turned on their way. A lane has both elements
  /// of each pair: half a head is whole fragments.
  __device__ __forceinline__ void load_turned(const std::int64_t (&rows)[2],
                                              const std::int64_t (&tokens)[2]) {
    constexpr int kHalf = Shape::kHeadDim / 2;
    const QueryTurnParams& turn = params_.turn;
    float scale[2] = {1.0F, 1.0F};
    if (turn.norm != nullptr) {
      scale[0] = norm_scale(rows[0]);
      scale[1] = norm_scale(rows[1]);
    }
    const auto normed = [&](std::int64_t place, int column, int half) {
      float2 x = query_floats(place + column);
      if (turn.norm != nullptr) {
        x.x = x.x * scale[half] * turn.norm[column];
        x.y = x.y * scale[half] * turn.norm[column + 1];
      }
      return x;
    };
#pragma unroll
    for (int k = 0; k < kDepth / 2; ++k) {
      std::uint32_t low[4] = {};
      std::uint32_t high[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i % 2;
        if (rows[half] < 0) {
          continue;
        }
        const int column = k * 16 + i / 2 * 8 + 2 * t();
        const float2 a = normed(rows[half], column, half);
        const float2 b = normed(rows[half], column + kHalf, half);
        const float* angles = turn.cos_sin + tokens[half] * turn.cos_sin_stride + column;
        const float2 c = *reinterpret_cast<const float2*>(angles);
        const float2 s = *reinterpret_cast<const float2*>(angles + kHalf);
        low[i] = to_bf16_pair(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y);
        high[i] = to_bf16_pair(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y);
      }
      keep_query(k, low);
      keep_query(k + kDepth / 2, high);
    }
  }

  __device__ __forceinline__ void query_part(int k, std::uint32_t (&parts)[4]) const {
    if constexpr (Shape::kQueryShared) {
      const uint4 all = queries_[(row_warp() * kDepth + k) * 32 + static_cast<int>(lane_index())];
      parts[0] = all.x;
      parts[1] = all.y;
      parts[2] = all.z;
      parts[3] = all.w;
    } else {
      for (int i = 0; i < 4; ++i) {
        parts[i] = query_[k][i];
      }
    }
  }

  /// The position of a step that this thread looks up; of the first kStep threads.
  __device__ __forceinline__ std::int32_t own_position(std::int32_t step) const {
    static_assert(Shape::kStep <= Shape::kThreads);
    return tile_.from + step * Shape::kStep + static_cast<std::int32_t>(threadIdx.x);
  }
  [[nodiscard]] __device__ __forceinline__ bool has_position(std::int32_t step) const {
    return threadIdx.x < Shape::kStep && own_position(step) < tile_.to;
  }

  /// The block that the position is in, if there is one.
  __device__ __forceinline__ std::int32_t block_of(std::int32_t step) const {
    return has_position(step) ? kv_block(params_.kv, tile_.sequence, own_position(step)) : 0;
  }

  /// Notes down where the position is: bytes from that of block 0; -1 past the end.
  __device__ __forceinline__ void place_step(std::int32_t step, std::int32_t block) {
    if (threadIdx.x < Shape::kStep) {
      places_[step % 2 * Shape::kStep + static_cast<int>(threadIdx.x)] =
          has_position(step)
              ? kv_offset(
                    params_.kv, block, own_position(step), static_cast<std::int32_t>(blockIdx.y))
              : -1;
    }
  }

  /// Begins to copy the keys and values of a step whose places are known.
  __device__ __forceinline__ void begin_step(std::int32_t step) {
    std::byte* keys = stages_ + step % 2 * Shape::kStageBytes;
    std::byte* values = keys + Shape::kStep * Shape::kStride;
    const std::int64_t* places = places_ + step % 2 * Shape::kStep;
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kStep * Shape::kChunks;
         i += Shape::kThreads) {
      const int position = i / Shape::kChunks;
      const int chunk = i % Shape::kChunks * 16;
      const std::int64_t place = places[position];
      const std::int64_t offset = (place < 0 ? 0 : place) + chunk;
      const int target = position * Shape::kStride + chunk;
      copy_async(keys + target, params_.kv.keys + offset, place >= 0);
      copy_async(values + target, params_.kv.values + offset, place >= 0);
    }
    copy_async_commit();
  }

  /// Takes in the positions of a step that are this warp's.
  __device__ __forceinline__ void attend(std::int32_t step) {
    const std::byte* keys = stages_ + step % 2 * Shape::kStageBytes +
                            position_warp() * Shape::kWarpStep * Shape::kStride;
    float scores[kScoreTiles][4] = {};
    multiply_keys(keys, scores);
    const std::int32_t first =
        tile_.from + step * Shape::kStep + position_warp() * Shape::kWarpStep;
    weigh(first, scores);
    add_values(keys + Shape::kStep * Shape::kStride, scores);
  }

  __device__ __forceinline__ void multiply_keys(const std::byte* keys,
                                                float (&scores)[kScoreTiles][4]) {
    const auto lane = static_cast<int>(lane_index());
    // Matrices: keys 0..7, of columns 0..7 and 8..15, then keys 8..15.
    const std::byte* own = keys + (lane / 16 * 8 + lane % 8) * Shape::kStride + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      std::uint32_t query[4];
      query_part(k, query);
#pragma unroll
      for (int j = 0; j < kScoreTiles / 2; ++j) {
        std::uint32_t parts[4];
        load_matrices(parts, own + j * 16 * Shape::kStride + k * 32);
        const std::uint32_t low[2] = {parts[0], parts[1]};
        const std::uint32_t high[2] = {parts[2], parts[3]};
        mma_bf16(scores[2 * j], query, low);
        mma_bf16(scores[2 * j + 1], query, high);
      }
    }
  }

  /// Takes from the lane's row `half` the scores of positions that it does not attend to.
  __device__ __forceinline__ void mask(int half,
                                       std::int32_t first,
                                       float (&scores)[kScoreTiles][4]) const {
    const std::int32_t own = position_of(params_, tile_, row(half));
    const std::int32_t begin = first_attended(params_, own);
    const std::int32_t last = last_attended(tile_, own);
#pragma unroll
    for (int i = 0; i < kScoreTiles * 2; ++i) {
      float& score = scores[i / 2][half * 2 + i % 2];
      const std::int32_t position = first + i / 2 * 8 + 2 * t() + i % 2;
      score = position >= begin && position <= last ? score : -INFINITY;
    }
  }

  /// Of products of the lane's row `half` scores in base 2.
  __device__ __forceinline__ void scale(int half, float (&scores)[kScoreTiles][4]) const {
    if (params_.cap_log2 > 0.0F) {
#pragma unroll
      for (int i = 0; i < kScoreTiles * 2; ++i) {
        float& score = scores[i / 2][half * 2 + i % 2];
        score = capped(params_, score);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kScoreTiles * 2; ++i) {
      scores[i / 2][half * 2 + i % 2] *= params_.scale_log2;
    }
  }

  /// Turns scores into weights and takes the sums so far to the new maximum. The first score of the
  /// warp is of position `first`. Most steps are of positions that all rows attend to.
  __device__ __forceinline__ void weigh(std::int32_t first, float (&scores)[kScoreTiles][4]) {
    const bool edge = first < all_from_ || first + Shape::kWarpStep - 1 > all_to_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale(half, scores);
      if (edge) {
        mask(half, first, scores);
      }
      float max = max_[half];
#pragma unroll
      for (int i = 0; i < kScoreTiles * 2; ++i) {
        max = fmaxf(max, scores[i / 2][half * 2 + i % 2]);
      }
      max = quad_max(max);
      const float base = max == -INFINITY ? 0.0F : max;  // No position of the row's so far.
      const float rescale = exp2_fast(max_[half] - base);
      max_[half] = max;
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kScoreTiles * 2; ++i) {
        float& score = scores[i / 2][half * 2 + i % 2];
        score = exp2_fast(score - base);
        sum += score;
      }
      sum_[half] = fmaf(sum_[half], rescale, sum);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        out_[i][half * 2] *= rescale;
        out_[i][half * 2 + 1] *= rescale;
      }
    }
  }

  __device__ __forceinline__ void add_values(const std::byte* values,
                                             const float (&weights)[kScoreTiles][4]) {
    const auto lane = static_cast<int>(lane_index());
    // Matrices: positions 0..7 and 8..15 of columns 0..7, then of columns 8..15.
    const std::byte* own = values + lane % 16 * Shape::kStride + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < kScoreTiles / 2; ++k) {
      const float(&low)[4] = weights[2 * k];
      const float(&high)[4] = weights[2 * k + 1];
      const std::uint32_t weight[4] = {to_bf16_pair(low[0], low[1]),
                                       to_bf16_pair(low[2], low[3]),
                                       to_bf16_pair(high[0], high[1]),
                                       to_bf16_pair(high[2], high[3])};
#pragma unroll
      for (int j = 0; j < kTiles / 2; ++j) {
        std::uint32_t parts[4];
        load_matrices_transposed(parts, own + k * 16 * Shape::kStride + j * 32);
        const std::uint32_t left[2] = {parts[0], parts[1]};
        const std::uint32_t right[2] = {parts[2], parts[3]};
        mma_bf16(out_[2 * j], weight, left);
        mma_bf16(out_[2 * j + 1], weight, right);
      }
    }
  }

  /// Each warp has all positions of its rows.
  __device__ __forceinline__ void write_own() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row(half) >= tile_.rows) {
        continue;
      }
      const AttentionRow target = target_of(params_, tile_, row(half));
      float max = max_[half];
      float sum = sum_[half];
      const float shrink = tile_.partial ? 1.0F : count_sink(params_, target.head, max, sum);
      if (t() == 0) {
        write_state(params_, tile_, target, max, sum);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        write_pair(params_,
                   tile_,
                   target,
                   i * 8 + 2 * t(),
                   make_float2(out_[i][half * 2] * shrink, out_[i][half * 2 + 1] * shrink),
                   sum);
      }
    }
  }

  /// Each warp has some positions of the same rows: they meet in shared memory.
  __device__ __forceinline__ void write_together() const {
    __syncthreads();                                 // Nobody reads keys or values there any more.
    auto* sums = reinterpret_cast<float*>(stages_);  // [warps, 16, kHeadDim]
    float* states = sums + Shape::kPositionWarps * 16 * Shape::kHeadDim;  // [warps, 16, 2]
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = position_warp() * 16 + row(half);
      if (t() == 0) {
        states[2 * at] = max_[half];
        states[2 * at + 1] = sum_[half];
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        *reinterpret_cast<float2*>(sums + at * Shape::kHeadDim + i * 8 + 2 * t()) =
            make_float2(out_[i][half * 2], out_[i][half * 2 + 1]);
      }
    }
    __syncthreads();
    constexpr int kPairs = Shape::kHeadDim / 2;
    for (int i = static_cast<int>(threadIdx.x); i < tile_.rows * kPairs; i += Shape::kThreads) {
      write_merged(sums, states, i / kPairs, i % kPairs * 2);
    }
  }

  /// Elements `column` and the next of a row, from all warps' sums and states.
  __device__ __forceinline__ void write_merged(const float* sums,
                                               const float* states,
                                               int row,
                                               int column) const {
    float max = -INFINITY;
    for (int w = 0; w < Shape::kPositionWarps; ++w) {
      max = fmaxf(max, states[2 * (w * 16 + row)]);
    }
    const float base = max == -INFINITY ? 0.0F : max;
    float sum = 0.0F;
    float2 weighted = make_float2(0.0F, 0.0F);
    for (int w = 0; w < Shape::kPositionWarps; ++w) {
      const float* state = states + 2 * (w * 16 + row);
      const float share = exp2_fast(state[0] - base);
      const float* part = sums + (w * 16 + row) * Shape::kHeadDim + column;
      sum = fmaf(share, state[1], sum);
      weighted.x = fmaf(share, part[0], weighted.x);
      weighted.y = fmaf(share, part[1], weighted.y);
    }
    const AttentionRow target = target_of(params_, tile_, row);
    if (!tile_.partial) {
      const float shrink = count_sink(params_, target.head, max, sum);
      weighted = make_float2(weighted.x * shrink, weighted.y * shrink);
    }
    if (column == 0) {
      write_state(params_, tile_, target, max, sum);
    }
    write_pair(params_, tile_, target, column, weighted, sum);
  }

  const AttentionParams& params_;
  const AttentionTile& tile_;
  std::byte* stages_;     ///< [2, keys and values of a step]
  uint4* queries_;        ///< [row warps, kDepth, lanes], if kQueryShared.
  std::int64_t* places_;  ///< [2, kStep]
  int warp_;
  std::int32_t all_from_;  ///< Positions that all rows of the warp attend to: the first
  std::int32_t all_to_;    ///< and the last.
  std::uint32_t query_[Shape::kQueryShared ? 1 : kDepth][4];
  float out_[kTiles][4] = {};  ///< Sums of values by weight.
  float max_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  ///< Of weights; the lane's own until the end.
};

template <class Shape>
__device__ __forceinline__ void attend_mma(const AttentionParams& params,
                                           const AttentionTile& tile) {
  HEDDLE_DYNAMIC_SHARED(memory);
  if (tile.rows > 0) {
    MmaAttention<Shape>(params, tile, memory).run();
  }
}

}  // namespace heddle::ops::cuda
