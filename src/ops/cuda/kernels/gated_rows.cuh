#pragma once

#include <cstdint>

#include "ops/cuda/kernels/elements.cuh"

namespace heddle::ops::cuda {

template <class In, class Out, class Params, class Gated>
__device__ void gated_row(const Params& params, const Gated& gated) {
  const In* gate = static_cast<const In*>(params.gate_up) + blockIdx.x * params.gate_up_stride;
  const In* up = gate + params.n;
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

/// The block's row of what gates let through: `gated(gate, up)` of each number, in the types that
/// the params of an activation say.
template <class Params, class Gated>
__device__ void gated_rows(const Params& params, const Gated& gated) {
  if (params.from_bf16 != 0) {  // Of models in bfloat16, whose results are so too.
    gated_row<std::uint16_t, std::uint16_t>(params, gated);
  } else if (params.bf16 != 0) {
    gated_row<float, std::uint16_t>(params, gated);
  } else {
    gated_row<float, float>(params, gated);
  }
}

}  // namespace heddle::ops::cuda
