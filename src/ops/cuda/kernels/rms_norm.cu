#include "ops/cuda/kernels/rms_norm.cuh"

namespace heddle::ops::cuda {

HEDDLE_KERNEL(heddle_rms_norm, RmsNormParams, kNormThreadsMax) {
  __shared__ float partial[kBlockWarpsMax];
  normalise(params,
            blockIdx.x,
            static_cast<int>(threadIdx.x),
            static_cast<int>(blockDim.x),
            [&](float own) { return block_sum(own, partial); });
}

HEDDLE_KERNEL(heddle_rms_norm_short, RmsNormParams, 128) {
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarpThreads;
  if (at < params.vectors) {
    normalise(params, at, static_cast<int>(lane_index()), kWarpThreads, [](float own) {
      return warp_sum(own);
    });
  }
}

}  // namespace heddle::ops::cuda
