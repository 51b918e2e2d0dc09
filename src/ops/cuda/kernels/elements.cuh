#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"
#include "ops/cuda/kernels/warp.cuh"

namespace heddle::ops::cuda {

/// Elements that a thread moves at once where alignment allows.
constexpr std::int64_t kQuad = 4;

/// Elements `at` .. `at` + 3 of float32, or of bfloat16; a multiple of four of aligned memory.
__device__ __forceinline__ float4 load_quad(const float* from, std::int64_t at) {
  return *reinterpret_cast<const float4*>(from + at);
}
__device__ __forceinline__ float4 load_quad(const std::uint16_t* from, std::int64_t at) {
  const uint2 pairs = *reinterpret_cast<const uint2*>(from + at);
  return make_float4(bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y), bf16_high(pairs.y));
}
__device__ __forceinline__ void store_quad(float* to, std::int64_t at, const float4& values) {
  *reinterpret_cast<float4*>(to + at) = values;
}
__device__ __forceinline__ void store_quad(std::uint16_t* to,
                                           std::int64_t at,
                                           const float4& values) {
  *reinterpret_cast<uint2*>(to + at) =
      make_uint2(to_bf16_pair(values.x, values.y), to_bf16_pair(values.z, values.w));
}

/// One element.
__device__ __forceinline__ float load_element(const float* from, std::int64_t at) {
  return from[at];
}
__device__ __forceinline__ float load_element(const std::uint16_t* from, std::int64_t at) {
  return from_bf16(from[at]);
}
__device__ __forceinline__ void store_element(float* to, std::int64_t at, float value) {
  to[at] = value;
}
__device__ __forceinline__ void store_element(std::uint16_t* to, std::int64_t at, float value) {
  to[at] = to_bf16(value);
}

/// out_i = f(i) for i of one row of `n` elements, by the thread that is `rank` of `threads`; `f4`
/// gives four at once, for rows where quads are aligned on both sides.
template <class Out, class F, class F4>
__device__ __forceinline__ void fill_row(Out* out,
                                         std::int64_t n,
                                         bool quads,
                                         std::int64_t rank,
                                         std::int64_t threads,
                                         const F& f,
                                         const F4& f4) {
  if (quads) {
    for (std::int64_t i = rank * kQuad; i < n; i += threads * kQuad) {
      store_quad(out, i, f4(i));
    }
    return;
  }
  for (std::int64_t i = rank; i < n; i += threads) {
    store_element(out, i, f(i));
  }
}

/// The thread's number and the number of threads along y and x: of those that share a row where x
/// counts rows.
__device__ __forceinline__ std::int64_t row_rank() {
  return static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t row_threads() {
  return static_cast<std::int64_t>(gridDim.y) * blockDim.x;
}

}  // namespace heddle::ops::cuda
