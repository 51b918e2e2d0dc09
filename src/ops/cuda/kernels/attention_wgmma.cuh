#pragma once

#include "ops/cuda/kernels/attention_fragments.cuh"
#include "ops/cuda/kernels/attention_shape.h"
#include "ops/cuda/kernels/wgmma_intrinsics.cuh"

// Attention of many rows by products of warpgroups, over keys and values in bfloat16. As in a wide
// kernel of attention_mma.cuh a warp has sixteen rows and all positions, kStep at a time, and lanes
// hold the same. Operands in shared memory are read by the products themselves. While a warp
// weighs the scores of a step, its tensor core has the values of the step before to multiply
// (J. Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
// Low-precision", arXiv:2407.08608, section 3.2). So values come a step later than keys.

namespace heddle::ops::cuda {

/// One block at work.
template <class Shape>
class WgmmaAttention : AttentionFragments<Shape> {
  using Base = AttentionFragments<Shape>;
  using Base::kDepth;
  using Base::kScoreTiles;
  using Base::kTiles;

 public:
  __device__ __forceinline__ WgmmaAttention(const AttentionParams& params,
                                            const AttentionTile& tile,
                                            std::byte* memory)
      : Base(params, tile, memory + Shape::kQueryBytes + 4 * Shape::kTileBytes), memory_(memory) {}

  __device__ __forceinline__ void run() {
    const std::int32_t steps = (tile_.to - tile_.from + Shape::kStep - 1) / Shape::kStep;
    place_rows();
    load_query([&](int k, const std::uint32_t(&parts)[4]) { keep_query(k, parts); });
    if (steps > 0) {
      place_step(0, block_of(0));
      place_step(1, block_of(1));
      __syncthreads();
      attend(steps);
    }
    end_sums();
    write_own();
  }

 private:
  static constexpr int kWeightParts = Shape::kStep / 16;

  using Base::block_of;
  using Base::end_sums;
  using Base::g;
  using Base::load_query;
  using Base::out_;
  using Base::pack;
  using Base::params_;
  using Base::place_rows;
  using Base::place_step;
  using Base::places_of;
  using Base::rescale_sums;
  using Base::row;
  using Base::t;
  using Base::tile_;
  using Base::warp_;
  using Base::weigh;
  using Base::write_own;

  __device__ __forceinline__ std::byte* keys_of(std::int32_t step) const {
    return memory_ + Shape::kQueryBytes + step % 2 * Shape::kTileBytes;
  }
  __device__ __forceinline__ std::byte* values_of(std::int32_t step) const {
    return memory_ + Shape::kQueryBytes + (2 + step % 2) * Shape::kTileBytes;
  }

  /// Where the 16 bytes `chunk` of a row are in a matrix of `rows` rows.
  static __device__ __forceinline__ int chunk_at(int rows, int row, int chunk) {
    return chunk / Shape::kLineChunks * rows * Shape::kLine + row * Shape::kLine +
           (chunk % Shape::kLineChunks ^ row % 8) * 16;
  }

  __device__ __forceinline__ void keep_query(int k, const std::uint32_t (&parts)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = chunk_at(Shape::kRows, row(i % 2), 2 * k + i / 2) + 4 * t();
      *reinterpret_cast<std::uint32_t*>(memory_ + at) = parts[i];
    }
  }

  /// Begins to copy what a step has of `from`, keys or values.
  __device__ __forceinline__ void begin_copies(std::int32_t step,
                                               const std::byte* from,
                                               std::byte* to) const {
    // A thread has the same 16 bytes of every kEach-th row. These lie one below the other, as atoms
    // have eight rows.
    constexpr int kEach = Shape::kThreads / Shape::kChunks;
    static_assert(kEach % 8 == 0 && Shape::kStep % kEach == 0);
    const int first = static_cast<int>(threadIdx.x) / Shape::kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % Shape::kChunks;
    const std::int64_t* places = places_of(step) + first;
    from += chunk * 16;
    to += chunk_at(Shape::kStep, first, chunk);
#pragma unroll
    for (int row = 0; row < Shape::kStep; row += kEach) {
      copy_async(to + row * Shape::kLine, from + places[row], true);
    }
  }

  /// What was begun before is there for all, and nobody needs what it was before any more.
  static __device__ __forceinline__ void meet() {
    copy_async_wait<0>();
    show_to_products();
    __syncthreads();
  }

  /// Begins to multiply the queries with the keys of a step.
  __device__ __forceinline__ void multiply_keys(std::int32_t step,
                                                float (&scores)[kScoreTiles][4]) const {
    const std::byte* own = memory_ + warp_ / 4 * 64 * Shape::kLine;
    const std::uint64_t queries = matrix_descriptor(shared_address(own), 0, Shape::kAtom);
    const std::uint64_t keys = matrix_descriptor(shared_address(keys_of(step)), 0, Shape::kAtom);
    constexpr int kPanel = 4;  // Products that a panel's columns are enough for.
    begin_products();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const std::uint64_t a =
          matrix_after(queries, k / kPanel * Shape::kRows * Shape::kLine + k % kPanel * 32);
      const std::uint64_t b =
          matrix_after(keys, k / kPanel * Shape::kStep * Shape::kLine + k % kPanel * 32);
      if (k == 0) {
        multiply_shared<false>(scores, a, b);
      } else {
        multiply_shared<true>(scores, a, b);
      }
    }
    commit_products();
  }

  /// Begins to add the values of a step by weight, in a group that is open.
  __device__ __forceinline__ void add_values(std::int32_t step,
                                             const std::uint32_t (&weights)[kWeightParts][4]) {
    const std::uint64_t values = matrix_descriptor(
        shared_address(values_of(step)), Shape::kStep * Shape::kLine, Shape::kAtom);
    begin_products();
#pragma unroll
    for (int k = 0; k < kWeightParts; ++k) {
      multiply_own(out_, weights[k], matrix_after(values, k * 16 * Shape::kLine));
    }
  }

  __device__ __forceinline__ void attend(std::int32_t steps) {
    float scores[kScoreTiles][4];
    std::uint32_t weights[kWeightParts][4];
    float rescale[2];
    begin_copies(0, params_.kv.keys, keys_of(0));
    copy_async_commit();
    for (std::int32_t step = 0; step < steps; ++step) {
      meet();
      const std::int32_t block = block_of(step + 2);  // Comes while the step is computed.
      multiply_keys(step, scores);
      if (step > 0) {
        add_values(step - 1, weights);
      }
      commit_products();  // Of nothing at first, so that what is waited for is the same.
      begin_copies(step + 1, params_.kv.keys, keys_of(step + 1));
      begin_copies(step, params_.kv.values, values_of(step));
      copy_async_commit();
      wait_products<1>();
      settle_sums(scores);
      weigh(tile_.from + step * Shape::kStep, scores, rescale);
      wait_products<0>();
      settle_sums(out_);
      rescale_sums(rescale);
#pragma unroll
      for (int k = 0; k < kWeightParts; ++k) {
        pack(k, scores, weights[k]);
      }
      place_step(step + 2, block);
    }
    meet();
    add_values(steps - 1, weights);
    commit_products();
    wait_products<0>();
    settle_sums(out_);
  }

  std::byte* memory_;  ///< Queries, keys of two steps, values of two steps; then places.
};

template <class Shape>
__device__ __forceinline__ void attend_wgmma(const AttentionParams& params,
                                             const AttentionTile& tile) {
  HEDDLE_DYNAMIC_SHARED(memory);
  if (tile.rows > 0) {
    const std::uint32_t past = shared_address(memory) % Shape::kAtom;
    WgmmaAttention<Shape>(params, tile, memory + (Shape::kAtom - past) % Shape::kAtom).run();
  }
}

}  // namespace heddle::ops::cuda
