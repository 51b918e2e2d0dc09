#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

/// silu_mul.h
__device__ __forceinline__ float silu_mul(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

}  // namespace heddle::ops::cuda
