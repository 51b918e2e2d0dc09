#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

/// Of `blocks` blocks that share `counter`, which is zero before the first and after the last,
/// whether this one is the last to come here: then it sees what all of them wrote before. All
/// threads of a one-dimensional block call it; `shared` is an int of shared memory.
__device__ __forceinline__ bool is_last_block(std::int32_t* counter,
                                              std::int32_t blocks,
                                              std::int32_t& shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // What the block wrote is there before its count is.
    const std::int32_t before = atomicAdd(counter, 1);
    __threadfence();  // What others wrote is not read before their counts are.
    shared = before;
    if (before == blocks - 1) {
      *counter = 0;
    }
  }
  __syncthreads();
  return shared == blocks - 1;
}

}  // namespace heddle::ops::cuda
