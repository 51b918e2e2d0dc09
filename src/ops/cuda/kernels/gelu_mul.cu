#include "ops/cuda/kernels/gated_rows.cuh"
#include "ops/cuda/kernels/gelu_mul_params.h"

namespace heddle::ops::cuda {
namespace {

/// gelu_mul.h
__device__ __forceinline__ float gelu_mul(float gate, float up) {
  constexpr float kRoot = 0.797884560802865356F;  // sqrt(2 / pi)
  const float inner = kRoot * fmaf(0.044715F * gate * gate, gate, gate);
  return 0.5F * gate * (1.0F + tanhf(inner)) * up;
}

}  // namespace

HEDDLE_KERNEL(heddle_gelu_mul, GeluMulParams, 256) {
  gated_rows(params, [](float gate, float up) { return gelu_mul(gate, up); });
}

}  // namespace heddle::ops::cuda
