#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

constexpr unsigned kBlockWarpsMax = 32;

/// Of the warp's values, in every lane: always added in the same tree.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (unsigned mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value += shuffle_xor(value, mask);
  }
  return value;
}
/// The same of each of kCount values, a power of two, to the same bits: lane i has the sum of
/// values[i / (kWarpThreads / kCount)]. Fewer shuffles than one by one: at each step a lane keeps
/// half of the values and gives the other half to its partner. `values` is used up.
template <int kCount, class T>
__device__ __forceinline__ T warp_sums(T (&values)[kCount]) {
  static_assert(kCount > 0 && kCount <= static_cast<int>(kWarpThreads) &&
                (kCount & (kCount - 1)) == 0);
  unsigned mask = kWarpThreads / 2;
#pragma unroll
  for (int left = kCount / 2; left > 0; left /= 2) {
    const bool upper = (lane_index() & mask) != 0;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const T own = upper ? values[i + left] : values[i];
      const T others = upper ? values[i] : values[i + left];
      values[i] = own + shuffle_xor(others, mask);
    }
    mask /= 2;
  }
  for (; mask > 0; mask /= 2) {
    values[0] += shuffle_xor(values[0], mask);
  }
  return values[0];
}
__device__ __forceinline__ float warp_max(float value) {
  for (unsigned mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, shuffle_xor(value, mask));
  }
  return value;
}

/// Of the block's values, in every thread. All threads of a one-dimensional block call it.
/// `partial` is shared memory of one T per warp, free again after the next barrier.
template <class T>
__device__ __forceinline__ T block_sum(T value, T* partial) {
  value = warp_sum(value);
  if (lane_index() == 0) {
    partial[threadIdx.x / kWarpThreads] = value;
  }
  __syncthreads();
  const unsigned warps = blockDim.x / kWarpThreads;
  return warp_sum(lane_index() < warps ? partial[lane_index()] : T{});
}

/// The value of bfloat16 bits, and of the halves of a pair of them.
__device__ __forceinline__ float from_bf16(std::uint16_t bits) {
  return bits_float(static_cast<std::uint32_t>(bits) << 16U);
}
__device__ __forceinline__ float bf16_low(std::uint32_t pair) {
  return bits_float(pair << 16U);
}
__device__ __forceinline__ float bf16_high(std::uint32_t pair) {
  return bits_float(pair & 0xffff0000U);
}

}  // namespace heddle::ops::cuda
