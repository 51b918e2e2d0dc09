#include "ops/cuda/kernels/linear_params.h"
#include "ops/cuda/kernels/warp.cuh"

/// A token's numbers as whole multiples of 2^(e - 14), where 2^e is the largest power of two in its
/// largest magnitude: sixteen bits with the sign, cut in halves for tensor cores, which multiply
/// eight bits.
namespace heddle::ops::cuda {

constexpr int kNumberBits = 14;

/// Of all threads' values, the largest; NaN is none of them.
__device__ inline float block_max(float value, float (&partial)[kSplitThreads / 32]) {
  value = warp_max(value);
  if (lane_index() == 0) {
    partial[threadIdx.x / 32] = value;
  }
  __syncthreads();
  for (const float other : partial) {
    value = fmaxf(value, other);
  }
  return value;
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_split_tokens,
              heddle::ops::cuda::SplitTokensParams,
              heddle::ops::cuda::kSplitThreads) {
  using namespace heddle::ops::cuda;
  __shared__ float partial[kSplitThreads / 32];
  const std::int64_t token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const auto* x = reinterpret_cast<const std::uint16_t*>(params.x + token * params.x_stride);
  const float infinity = bits_float(0x7f800000U);
  float largest = 0.0F;
  for (int i = thread; i < params.inputs; i += kSplitThreads) {
    const float magnitude = fabsf(from_bf16(x[i]));
    largest = fmaxf(largest, magnitude <= infinity ? magnitude : infinity);
  }
  largest = block_max(largest, partial);
  const bool finite = largest < infinity;
  const int exponent = finite && largest > 0.0F ? ilogbf(largest) : 0;
  for (std::int64_t i = thread; i < params.pitch; i += kSplitThreads) {
    int number = 0;
    if (finite && i < params.inputs) {
      number = static_cast<int>(rintf(ldexpf(from_bf16(x[i]), kNumberBits - exponent)));
    }
    params.high[token * params.pitch + i] = static_cast<std::byte>(number >> 8);
    params.low[token * params.pitch + i] = static_cast<std::byte>(number & 0xff);
  }
  if (thread == 0) {
    params.exponent[token] = finite ? exponent - kNumberBits : kNotFinite;
  }
}
