#include "ops/cuda/kernels/penalties_params.h"
#include "ops/cuda/kernels/warp.cuh"

namespace heddle::ops::cuda {

__device__ inline float penalised(float x, const TokenUse& use, const PenaltyRow& row) {
  x = x + use.bias;
  if (use.seen != 0) {
    x = x > 0.0F ? x / row.repetition : x * row.repetition;
  }
  if (use.generated > 0) {
    x = x - row.presence;
    x = x - row.frequency * static_cast<float>(use.generated);
  }
  return x;
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_penalties,
              heddle::ops::cuda::PenaltiesParams,
              heddle::ops::cuda::kPenaltiesThreads) {
  const heddle::ops::PenaltyRow row = params.rows[blockIdx.x];
  float* logits = params.logits + blockIdx.x * params.stride;
  for (int i = row.begin + static_cast<int>(threadIdx.x); i < row.end;
       i += static_cast<int>(blockDim.x)) {
    const heddle::ops::TokenUse use = params.uses[i];
    logits[use.token] = heddle::ops::cuda::penalised(logits[use.token], use, row);
  }
}
