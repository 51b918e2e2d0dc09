#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/gelu_mul_params.h"

namespace heddle::ops::cuda {
namespace {

/// gelu_mul.h
__device__ __forceinline__ float gelu_mul(float gate, float up) {
  constexpr float kRoot = 0.797884560802865356F;  // sqrt(2 / pi)
  const float inner = kRoot * fmaf(0.044715F * gate * gate, gate, gate);
  return 0.5F * gate * (1.0F + tanhf(inner)) * up;
}

template <class In, class Out>
__device__ void gelu_mul_row(const GeluMulParams& params) {
  const In* gate = static_cast<const In*>(params.gate_up) + blockIdx.x * params.gate_up_stride;
  const In* up = gate + params.n;
  fill_row(
      static_cast<Out*>(params.out) + blockIdx.x * params.out_stride,
      params.n,
      params.quads != 0,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) { return gelu_mul(load_element(gate, i), load_element(up, i)); },
      [&](std::int64_t i) {
        const float4 g = load_quad(gate, i);
        const float4 u = load_quad(up, i);
        return make_float4(
            gelu_mul(g.x, u.x), gelu_mul(g.y, u.y), gelu_mul(g.z, u.z), gelu_mul(g.w, u.w));
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_gelu_mul, GeluMulParams, 256) {
  if (params.from_bf16 != 0) {  // Of models in bfloat16, whose results are so too.
    gelu_mul_row<std::uint16_t, std::uint16_t>(params);
  } else if (params.bf16 != 0) {
    gelu_mul_row<float, std::uint16_t>(params);
  } else {
    gelu_mul_row<float, float>(params);
  }
}

}  // namespace heddle::ops::cuda
