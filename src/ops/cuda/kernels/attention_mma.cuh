#pragma once

#include "ops/cuda/kernels/attention_fragments.cuh"
#include "ops/cuda/kernels/attention_shape.h"
#include "ops/cuda/kernels/codes.cuh"

// Attention on tensor cores over keys and values in bfloat16. A block goes through its positions
// kStep at a time, the next step's keys and values on their way meanwhile. Each warp holds sixteen
// rows as one tile of the tensor cores: in a wide kernel four warps hold other rows and share all
// positions; in a narrow one all warps hold the same rows, share the positions of a step among them
// and put their results together in the end.
//
// Keys and values that are codes of a byte each arrive as such and become a tile of bfloat16,
// exactly, once all of a step are there. A key's scale multiplies its scores, a value's its
// weights.

namespace heddle::ops::cuda {

/// One block at work.
template <class Shape>
class MmaAttention : AttentionFragments<Shape> {
  using Base = AttentionFragments<Shape>;
  using Base::kDepth;
  using Base::kScoreTiles;
  using Base::kTiles;

 public:
  __device__ __forceinline__ MmaAttention(const AttentionParams& params,
                                          const AttentionTile& tile,
                                          std::byte* memory)
      : Base(params, tile, memory + Shape::kStagesBytes + Shape::kQueryBytes),
        memory_(memory),
        queries_(reinterpret_cast<uint4*>(memory + Shape::kStagesBytes)) {}

  __device__ __forceinline__ void run() {
    const std::int32_t steps = (tile_.to - tile_.from + Shape::kStep - 1) / Shape::kStep;
    place_rows();
    load_query([&](int k, const std::uint32_t(&parts)[4]) { keep_query(k, parts); });
    place_step(0, block_of(0));
    __syncthreads();
    if (steps > 0) {
      begin_step(0);
    }
    place_step(1, block_of(1));
    for (std::int32_t step = 0; step < steps; ++step) {
      copy_async_wait<0>();
      __syncthreads();  // The step is there, and nobody reads the one before any more.
      if constexpr (Shape::kCodes) {
        keep_scales();
      }
      if (step + 1 < steps) {
        begin_step(step + 1);
      }
      if constexpr (Shape::kCodes) {
        decode_step(step);
      }
      const std::int32_t block = block_of(step + 2);  // Comes while the step is computed.
      attend(step);
      place_step(step + 2, block);
    }
    end_sums();
    if constexpr (Shape::kPositionWarps == 1) {
      write_own();
    } else {
      write_together();
    }
  }

 private:
  using Base::block_of;
  using Base::end_sums;
  using Base::g;
  using Base::load_query;
  using Base::max_;
  using Base::out_;
  using Base::own_position;
  using Base::pack;
  using Base::params_;
  using Base::place_rows;
  using Base::place_step;
  using Base::places_;
  using Base::places_of;
  using Base::position_warp;
  using Base::rescale_sums;
  using Base::row;
  using Base::row_warp;
  using Base::sum_;
  using Base::t;
  using Base::tile_;
  using Base::weigh;
  using Base::write_own;

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

  /// Begins to copy the keys and values of a step whose places are known.
  __device__ __forceinline__ void begin_step(std::int32_t step) {
    std::byte* keys = stage(step);
    std::byte* values = keys + Shape::kStep * Shape::kStageStride;
    const std::int64_t* places = places_of(step);
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kStep * Shape::kChunks;
         i += Shape::kThreads) {
      const int position = i / Shape::kChunks;
      const int chunk = i % Shape::kChunks * 16;
      const std::int64_t offset = places[position] + chunk;
      const int target = position * Shape::kStageStride + chunk;
      copy_async(keys + target, params_.kv.keys + offset, true);
      copy_async(values + target, params_.kv.values + offset, true);
    }
    copy_async_commit();
    if constexpr (Shape::kCodes) {
      load_scales(step);
    }
  }

  /// Where the keys and values of a step arrive.
  __device__ __forceinline__ std::byte* stage(std::int32_t step) const {
    return memory_ + (Shape::kCodes ? Shape::kTileBytes : 0) + step % 2 * Shape::kStageBytes;
  }
  /// The scales of a step's keys, and of its values.
  __device__ __forceinline__ float* scales(bool of_values) const {
    return reinterpret_cast<float*>(places_ + Shape::kPlaceSteps * Shape::kStep) +
           (of_values ? Shape::kStep : 0);
  }

  /// Asks for the scales of the position of a step that this thread looks up.
  __device__ __forceinline__ void load_scales(std::int32_t step) {
    if (threadIdx.x < Shape::kStep) {
      const std::int64_t offset = kv_scale_offset(
          params_.kv, block_of(step), own_position(step), static_cast<std::int32_t>(blockIdx.y));
      scale_[0] = load_kv_scale(params_.kv.key_scales, offset);
      scale_[1] = load_kv_scale(params_.kv.value_scales, offset);
    }
  }
  /// Those that have come since, for all threads.
  __device__ __forceinline__ void keep_scales() {
    if (threadIdx.x < Shape::kStep) {
      scales(false)[threadIdx.x] = scale_[0];
      scales(true)[threadIdx.x] = scale_[1];
    }
  }

  /// Makes a tile of the codes of a step. All threads see it then.
  __device__ __forceinline__ void decode_step(std::int32_t step) {
    if (params_.kv.codes == kE4m3Codes) {
      decode<E4m3Codes>(stage(step));
    } else {
      decode<Int8Codes>(stage(step));
    }
    __syncthreads();
  }
  /// Eight at a time, keys and then values.
  template <class Codes>
  __device__ __forceinline__ void decode(const std::byte* codes) {
    constexpr int kEights = Shape::kHeadDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * Shape::kStep * kEights;
         i += Shape::kThreads) {
      const uint2 eight = *reinterpret_cast<const uint2*>(codes + i * 8);
      std::uint32_t low[2];
      std::uint32_t high[2];
      Codes::pairs(eight.x, low);
      Codes::pairs(eight.y, high);
      *reinterpret_cast<uint4*>(memory_ + i / kEights * Shape::kStride + i % kEights * 16) =
          make_uint4(low[0], low[1], high[0], high[1]);
    }
  }

  /// Takes in the positions of a step that are this warp's.
  __device__ __forceinline__ void attend(std::int32_t step) {
    const std::byte* keys = (Shape::kCodes ? memory_ : stage(step)) +
                            position_warp() * Shape::kWarpStep * Shape::kStride;
    float scores[kScoreTiles][4] = {};
    multiply_keys(keys, scores);
    if constexpr (Shape::kCodes) {
      multiply_scales(/*of_values=*/false, scores);
    }
    const std::int32_t first =
        tile_.from + step * Shape::kStep + position_warp() * Shape::kWarpStep;
    float rescale[2];
    weigh(first, scores, rescale);
    rescale_sums(rescale);
    if constexpr (Shape::kCodes) {
      multiply_scales(/*of_values=*/true, scores);
    }
    add_values(keys + Shape::kStep * Shape::kStride, scores);
  }

  /// Multiplies what the lane has of each position with its scale. What is nothing stays so: the
  /// scale of a position that a row does not attend to may be no number.
  __device__ __forceinline__ void multiply_scales(bool of_values,
                                                  float (&numbers)[kScoreTiles][4]) const {
    const float* own = scales(of_values) + position_warp() * Shape::kWarpStep + 2 * t();
#pragma unroll
    for (int i = 0; i < kScoreTiles * 2; ++i) {
      const float scale = own[i / 2 * 8 + i % 2];
      for (int half = 0; half < 2; ++half) {
        float& number = numbers[i / 2][half * 2 + i % 2];
        number = of_values && number == 0.0F ? 0.0F : number * scale;
      }
    }
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

  __device__ __forceinline__ void add_values(const std::byte* values,
                                             const float (&weights)[kScoreTiles][4]) {
    const auto lane = static_cast<int>(lane_index());
    // Matrices: positions 0..7 and 8..15 of columns 0..7, then of columns 8..15.
    const std::byte* own = values + lane % 16 * Shape::kStride + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < kScoreTiles / 2; ++k) {
      std::uint32_t weight[4];
      pack(k, weights, weight);
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

  /// Each warp has some positions of the same rows: they meet in shared memory.
  __device__ __forceinline__ void write_together() const {
    __syncthreads();                                 // Nobody reads keys or values there any more.
    auto* sums = reinterpret_cast<float*>(memory_);  // [warps, 16, kHeadDim]
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

  /// [2, keys and values of a step]; of codes a tile of a step, and behind it the same.
  std::byte* memory_;
  uint4* queries_;                      ///< [row warps, kDepth, lanes], if kQueryShared.
  float scale_[Shape::kCodes ? 2 : 1];  ///< Of a key and a value that have been asked for.
  std::uint32_t query_[Shape::kQueryShared ? 1 : kDepth][4];
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
