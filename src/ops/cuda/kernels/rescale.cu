#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/rescale_params.h"

namespace heddle::ops::cuda {
namespace {

template <class Out>
__device__ void rescale_row(const RescaleParams& params) {
  const float* x = params.x + blockIdx.x * params.x_stride;
  const auto rescaled = [&](float value) {
    const float scaled = params.factor * value;
    return params.cap > 0.0F ? params.cap * tanhf(scaled / params.cap) : scaled;
  };
  fill_row(
      static_cast<Out*>(params.out) + blockIdx.x * params.out_stride,
      params.columns,
      params.quads != 0,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) { return rescaled(x[i]); },
      [&](std::int64_t i) {
        const float4 quad = load_quad(x, i);
        return make_float4(rescaled(quad.x), rescaled(quad.y), rescaled(quad.z), rescaled(quad.w));
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_rescale, RescaleParams, 256) {
  if (params.bf16 != 0) {
    rescale_row<std::uint16_t>(params);
  } else {
    rescale_row<float>(params);
  }
}

}  // namespace heddle::ops::cuda
