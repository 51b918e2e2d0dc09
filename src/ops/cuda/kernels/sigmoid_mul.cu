#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/sigmoid_mul_params.h"

namespace heddle::ops::cuda {
namespace {

__device__ __forceinline__ float opened(float value, float gate) {
  return value / (1.0F + expf(-gate));
}

template <class Gate, class Row>
__device__ void open_row(const SigmoidMulParams& params) {
  const Gate* gate = static_cast<const Gate*>(params.gate) + blockIdx.x * params.gate_stride;
  Row* row = static_cast<Row*>(params.rows) + blockIdx.x * params.rows_stride;
  fill_row(
      row,
      params.n,
      params.quads != 0,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) { return opened(load_element(row, i), load_element(gate, i)); },
      [&](std::int64_t i) {
        const float4 x = load_quad(row, i);
        const float4 g = load_quad(gate, i);
        return make_float4(opened(x.x, g.x), opened(x.y, g.y), opened(x.z, g.z), opened(x.w, g.w));
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_sigmoid_mul, SigmoidMulParams, 256) {
  if (params.gate_bf16 != 0) {  // Of models in bfloat16, whose results are so too.
    open_row<std::uint16_t, std::uint16_t>(params);
  } else if (params.bf16 != 0) {
    open_row<float, std::uint16_t>(params);
  } else {
    open_row<float, float>(params);
  }
}

}  // namespace heddle::ops::cuda
