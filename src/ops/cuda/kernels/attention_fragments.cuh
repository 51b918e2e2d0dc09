#pragma once

#include "ops/cuda/kernels/attention.cuh"

// What the kernels of attention on tensor cores share: rows of queries, scores and sums as lanes
// hold them. Each warp has a tile of sixteen rows. A lane holds elements of rows g = lane / 4 and
// g + 8 of its warp's tile, called its rows 0 and 1 here, in columns 2t and 2t + 1 of every eight,
// t = lane % 4 (intrinsics.cuh, mma_bf16).

namespace heddle::ops::cuda {

/// One block's rows, and where its positions are.
template <class Shape>
class AttentionFragments {
 protected:
  static constexpr int kTiles = Shape::kHeadDim / 8;  ///< Of eight columns of a result.
  static constexpr int kDepth = Shape::kHeadDim / 16;
  static constexpr int kScoreTiles = Shape::kWarpStep / 8;

  /// `places`: shared memory for [kPlaceSteps, kStep].
  __device__ __forceinline__ AttentionFragments(const AttentionParams& params,
                                                const AttentionTile& tile,
                                                std::byte* places)
      : params_(params),
        tile_(tile),
        places_(reinterpret_cast<std::int64_t*>(places)),
        warp_(static_cast<int>(threadIdx.x / kWarpThreads)) {}

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

  /// Hands the lane's queries in columns 16 k and on to keep(k, parts), as a multiplication takes
  /// them.
  template <class Keep>
  __device__ __forceinline__ void load_query(const Keep& keep) const {
    std::int64_t rows[2];
    std::int64_t tokens[2];
    place_query(rows, tokens);
    if (params_.turn.cos_sin != nullptr) {
      load_turned(rows, tokens, keep);
      return;
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      std::uint32_t parts[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts[i] = rows[i % 2] < 0 ? 0 : query_pair(rows[i % 2] + k * 16 + i / 2 * 8 + 2 * t());
      }
      keep(k, parts);
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
  template <class Keep>
  __device__ __forceinline__ void load_turned(const std::int64_t (&rows)[2],
                                              const std::int64_t (&tokens)[2],
                                              const Keep& keep) const {
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
      keep(k, low);
      keep(k + kDepth / 2, high);
    }
  }

  /// The position of a step that this thread looks up; of the first kStep threads. Past the end the
  /// last one stands in, which is masked out there: it needs no case of its own.
  __device__ __forceinline__ std::int32_t own_position(std::int32_t step) const {
    static_assert(Shape::kStep <= Shape::kThreads);
    const std::int32_t position =
        tile_.from + step * Shape::kStep + static_cast<std::int32_t>(threadIdx.x);
    return min(position, tile_.to - 1);
  }

  /// The block that the position is in; where the tile has positions.
  __device__ __forceinline__ std::int32_t block_of(std::int32_t step) const {
    return threadIdx.x < Shape::kStep ? kv_block(params_.kv, tile_.sequence, own_position(step))
                                      : 0;
  }

  __device__ __forceinline__ std::int64_t* places_of(std::int32_t step) const {
    return places_ + step % Shape::kPlaceSteps * Shape::kStep;
  }

  /// Notes down where the position is: bytes from that of block 0.
  __device__ __forceinline__ void place_step(std::int32_t step, std::int32_t block) {
    if (threadIdx.x < Shape::kStep) {
      places_of(step)[threadIdx.x] =
          kv_offset(params_.kv, block, own_position(step), static_cast<std::int32_t>(blockIdx.y));
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

  /// Whether products times scale_log2 are scores in base 2, and order as they do: the scale is
  /// then part of an addition that there is anyway.
  [[nodiscard]] __device__ __forceinline__ bool scales_late() const {
    return params_.cap_log2 <= 0.0F && params_.scale_log2 > 0.0F;
  }

  /// Of products of the lane's row `half` scores in base 2.
  __device__ __forceinline__ void scale(int half, float (&scores)[kScoreTiles][4]) const {
#pragma unroll
    for (int i = 0; i < kScoreTiles * 2; ++i) {
      float& score = scores[i / 2][half * 2 + i % 2];
      score = params_.cap_log2 > 0.0F ? capped(params_, score) : score * params_.scale_log2;
    }
  }

  /// Turns products into weights. The first of the warp is of position `first`. What was summed so
  /// far is to be multiplied with `rescale`. Most steps are of positions that all rows attend to.
  __device__ __forceinline__ void weigh(std::int32_t first,
                                        float (&scores)[kScoreTiles][4],
                                        float (&rescale)[2]) {
    const bool edge = first < all_from_ || first + Shape::kWarpStep - 1 > all_to_;
    const float factor = scales_late() ? params_.scale_log2 : 1.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!scales_late()) {
        scale(half, scores);
      }
      if (edge) {
        mask(half, first, scores);
      }
      float max = -INFINITY;
#pragma unroll
      for (int i = 0; i < kScoreTiles * 2; ++i) {
        max = fmaxf(max, scores[i / 2][half * 2 + i % 2]);
      }
      max = fmaxf(max_[half], quad_max(max) * factor);
      const float base = max == -INFINITY ? 0.0F : max;  // No position of the row's so far.
      rescale[half] = exp2_fast(max_[half] - base);
      max_[half] = max;
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kScoreTiles * 2; ++i) {
        float& score = scores[i / 2][half * 2 + i % 2];
        score = exp2_fast(fmaf(score, factor, -base));
        sum += score;
      }
      sum_[half] = fmaf(sum_[half], rescale[half], sum);
    }
  }

  /// Takes the sums so far to the new maximum.
  __device__ __forceinline__ void rescale_sums(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      out_[i / 4][i % 4] *= rescale[i % 4 / 2];
    }
  }

  /// The weights of positions 16 k and on of the warp's, as a multiplication takes them.
  static __device__ __forceinline__ void pack(int k,
                                              const float (&weights)[kScoreTiles][4],
                                              std::uint32_t (&parts)[4]) {
    const float(&low)[4] = weights[2 * k];
    const float(&high)[4] = weights[2 * k + 1];
    parts[0] = to_bf16_pair(low[0], low[1]);
    parts[1] = to_bf16_pair(low[2], low[3]);
    parts[2] = to_bf16_pair(high[0], high[1]);
    parts[3] = to_bf16_pair(high[2], high[3]);
  }

  /// Sums of weights, of the rows' own lanes until then.
  __device__ __forceinline__ void end_sums() {
    sum_[0] = quad_sum(sum_[0]);
    sum_[1] = quad_sum(sum_[1]);
  }

  /// Where each warp has all positions of its rows.
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

  const AttentionParams& params_;
  const AttentionTile& tile_;
  std::int64_t* places_;  ///< [kPlaceSteps, kStep]
  int warp_;
  std::int32_t all_from_ = 0;  ///< Positions that all rows of the warp attend to: the first
  std::int32_t all_to_ = 0;    ///< and the last.
  float out_[kTiles][4] = {};  ///< Sums of values by weight.
  float max_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  ///< Of weights; the lane's own until the end.
};

}  // namespace heddle::ops::cuda
