#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/silu.cuh"
#include "ops/cuda/kernels/silu_mul_params.h"

namespace heddle::ops::cuda {
namespace {

template <class In, class Out>
__device__ void silu_mul_row(const SiluMulParams& params) {
  const In* gate = static_cast<const In*>(params.gate_up) + blockIdx.x * params.gate_up_stride;
  const In* up = gate + params.n;
  const auto gated = [&](float g, float u) {
    return params.limit > 0.0F ? silu_mul(g, u, params.limit, params.gain) : silu_mul(g, u);
  };
  fill_row(
      static_cast<Out*>(params.out) + blockIdx.x * params.out_stride,
      params.n,
      params.quads != 0,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) { return gated(load_element(gate, i), load_element(up, i)); },
      [&](std::int64_t i) {
        const float4 g = load_quad(gate, i);
        const float4 u = load_quad(up, i);
        return make_float4(gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w));
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_silu_mul, SiluMulParams, 256) {
  if (params.from_bf16 != 0) {  // Of models in bfloat16, whose results are so too.
    silu_mul_row<std::uint16_t, std::uint16_t>(params);
  } else if (params.bf16 != 0) {
    silu_mul_row<float, std::uint16_t>(params);
  } else {
    silu_mul_row<float, float>(params);
  }
}

}  // namespace heddle::ops::cuda
