#pragma once

#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/rms_norm_params.h"

namespace heddle::ops::cuda {

__device__ __forceinline__ float square(float value) {
  return value * value;
}

/// One thread's share of a vector's sum of squares.
__device__ __forceinline__ float squares_of(const float* x,
                                            const RmsNormParams& params,
                                            int rank,
                                            int threads) {
  float sum = 0.0F;
  if (params.quads != 0) {
    for (int i = rank * 4; i < params.columns; i += threads * 4) {
      const float4 quad = load_quad(x, i);
      sum += (square(quad.x) + square(quad.y)) + (square(quad.z) + square(quad.w));
    }
    return sum;
  }
  for (int i = rank; i < params.columns; i += threads) {
    sum += square(x[i]);
  }
  return sum;
}

/// One thread's share of a vector's results. It writes only what it read itself, so that `out` may
/// be `x`.
template <class Out>
__device__ __forceinline__ void scale_vector(
    const float* x, Out* out, float scale, const RmsNormParams& params, int rank, int threads) {
  fill_row(
      out,
      params.columns,
      params.quads != 0,
      rank,
      threads,
      [&](std::int64_t i) { return x[i] * scale * params.weight[i]; },
      [&](std::int64_t i) {
        const float4 quad = load_quad(x, i);
        const float4 weight = load_quad(params.weight, i);
        return make_float4(quad.x * scale * weight.x,
                           quad.y * scale * weight.y,
                           quad.z * scale * weight.z,
                           quad.w * scale * weight.w);
      });
}

/// The thread that is `rank` of `threads` does its share of vector `at`; `sum_all` adds up what
/// they have. Threads beyond those have no share, and add nothing.
template <class Sum>
__device__ __forceinline__ void normalise(
    const RmsNormParams& params, std::int64_t at, int rank, int threads, const Sum& sum_all) {
  const std::int64_t token = at / params.heads;
  const std::int64_t head = at - token * params.heads;
  const float* x = params.x + token * params.x_token_stride + head * params.x_head_stride;
  const std::int64_t out = token * params.out_token_stride + head * params.out_head_stride;
  const float squares = sum_all(rank < threads ? squares_of(x, params, rank, threads) : 0.0F);
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(params.columns) + params.eps);
  if (rank >= threads) {
    return;
  }
  if (params.bf16 != 0) {
    scale_vector(x, static_cast<std::uint16_t*>(params.out) + out, scale, params, rank, threads);
  } else {
    scale_vector(x, static_cast<float*>(params.out) + out, scale, params, rank, threads);
  }
}

}  // namespace heddle::ops::cuda
