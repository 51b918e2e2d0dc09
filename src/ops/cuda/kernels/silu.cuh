#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

/// silu_mul.h
__device__ __forceinline__ float silu_mul(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

/// The same with a limit above 0. What is no number stays so.
__device__ __forceinline__ float silu_mul(float gate, float up, float limit, float gain) {
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  return g / (1.0F + expf(-gain * g)) * (u + 1.0F);
}

}  // namespace heddle::ops::cuda
