// Kernels for the tests of devices and streams: the least that shows what ran, when and on what.

#include "cuda_emulator/probe_kernels.h"
#include "ops/cuda/kernels/intrinsics.cuh"

using namespace heddle::emulator;

HEDDLE_KERNEL(heddle_probe_fill, FillParams, 256) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < params.count) {
    params.out[i] = params.value;
  }
}

HEDDLE_KERNEL(heddle_probe_add, AddParams, 256) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < params.count) {
    params.out[i] += params.in[i];
  }
}

HEDDLE_KERNEL(heddle_probe_shared, SharedParams, 32) {
  HEDDLE_DYNAMIC_SHARED(memory);
  auto* const words = reinterpret_cast<std::int32_t*>(memory);
  if (threadIdx.x == 0) {
    words[params.words - 1] = 77;
  }
  __syncthreads();
  if (threadIdx.x == 31) {
    *params.out = words[params.words - 1];
  }
}
