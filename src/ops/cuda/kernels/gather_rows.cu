#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/gather_rows_params.h"

namespace heddle::ops::cuda {
namespace {

template <class Element>
__device__ void gather_row(const GatherRowsParams& params) {
  const std::int64_t row = params.rows[blockIdx.x] - params.first;
  const bool has = row >= 0 && row < params.entries;
  const Element* source = static_cast<const Element*>(params.table) + row * params.columns;
  fill_row(
      params.out + blockIdx.x * params.out_stride,
      params.columns,
      params.quads != 0,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) { return has ? load_element(source, i) : 0.0F; },
      [&](std::int64_t i) {
        return has ? load_quad(source, i) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_gather_rows, GatherRowsParams, 256) {
  if (params.bf16 != 0) {
    gather_row<std::uint16_t>(params);
  } else {
    gather_row<float>(params);
  }
}

}  // namespace heddle::ops::cuda
