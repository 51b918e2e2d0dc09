#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/silu_mul_params.h"

namespace heddle::ops::cuda {
namespace {

__device__ __forceinline__ float silu_mul(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}

template <class Out>
__device__ void silu_mul_row(const SiluMulParams& params) {
  const float* gate = params.gate_up + blockIdx.x * params.gate_up_stride;
  const float* up = gate + params.n;
  fill_row(
      static_cast<Out*>(params.out) + blockIdx.x * params.out_stride,
      params.n,
      params.quads != 0,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) { return silu_mul(gate[i], up[i]); },
      [&](std::int64_t i) {
        const float4 g = load_quad(gate, i);
        const float4 u = load_quad(up, i);
        return make_float4(
            silu_mul(g.x, u.x), silu_mul(g.y, u.y), silu_mul(g.z, u.z), silu_mul(g.w, u.w));
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_silu_mul, SiluMulParams, 256) {
  if (params.bf16 != 0) {
    silu_mul_row<std::uint16_t>(params);
  } else {
    silu_mul_row<float>(params);
  }
}

}  // namespace heddle::ops::cuda
