#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/rope_params.h"

namespace heddle::ops::cuda {

// Lanes take neighbouring pairs of a head: all four accesses are to consecutive floats.
HEDDLE_KERNEL(heddle_rope, RopeParams, 256) {
  const float* cos = params.cos_sin + blockIdx.x * params.cos_sin_stride;
  const float* sin = cos + params.half;
  const std::int64_t pairs = static_cast<std::int64_t>(params.head_count) * params.half;
  for (std::int64_t pair = row_rank(); pair < pairs; pair += row_threads()) {
    const auto head = static_cast<std::int32_t>(pair) / params.half;
    const auto i = static_cast<std::int32_t>(pair) - head * params.half;
    float* x = params.heads + blockIdx.x * params.token_stride + head * params.head_stride + i;
    const float a = x[0];
    const float b = x[params.half];
    x[0] = a * cos[i] - b * sin[i];
    x[params.half] = b * cos[i] + a * sin[i];
  }
}

}  // namespace heddle::ops::cuda
