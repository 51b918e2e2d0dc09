#pragma once

#include "ops/cuda/kernels/last_block.cuh"
#include "ops/cuda/kernels/linear_params.h"
#include "ops/cuda/kernels/rms_norm.cuh"
#include "ops/cuda/kernels/warp.cuh"

namespace heddle::ops::cuda {

/// Shared memory of then_normalise().
template <int kWarps>
struct ThenNormShared {
  std::int32_t count;
  float partial[kWarps];
};

/// Normalises all tokens, by the block of `kWarps` warps that comes last.
template <int kWarps>
__device__ void then_normalise(const LinearParams& params, ThenNormShared<kWarps>& shared) {
  if (!is_last_block(params.norm.counter, static_cast<std::int32_t>(gridDim.x), shared.count)) {
    return;
  }
  for (int token = 0; token < params.tokens; ++token) {
    normalise(params.norm.params,
              token,
              static_cast<int>(threadIdx.x),
              params.norm.threads,
              [&](float own) { return block_sum(own, shared.partial); });
    __syncthreads();
  }
}

}  // namespace heddle::ops::cuda
