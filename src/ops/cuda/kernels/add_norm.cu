#include "ops/cuda/kernels/add_norm_params.h"
#include "ops/cuda/kernels/rms_norm.cuh"

namespace heddle::ops::cuda {
namespace {

/// How a thread goes through a row: every `step`-th element from `first` on, one or four at once.
struct RowWalk {
  std::int32_t first;
  std::int32_t step;
  std::int32_t columns;

  __device__ explicit RowWalk(const AddNormParams& params)
      : first(static_cast<std::int32_t>(threadIdx.x) * (params.quads != 0 ? 4 : 1)),
        step(static_cast<std::int32_t>(blockDim.x) * (params.quads != 0 ? 4 : 1)),
        columns(params.columns) {}
};

__device__ __forceinline__ float squares(const float4& quad) {
  return (square(quad.x) + square(quad.y)) + (square(quad.z) + square(quad.w));
}

/// The thread's share of the squares of a row.
__device__ float squares_of_row(const AddNormParams& params, const RowWalk& walk, const float* x) {
  float sum = 0.0F;
  for (std::int32_t i = walk.first; i < walk.columns; i += walk.step) {
    sum += params.quads != 0 ? squares(load_quad(x, i)) : square(x[i]);
  }
  return sum;
}

/// What a row of so many squares is multiplied with to be normalised, but for weights.
__device__ __forceinline__ float scale_of(const AddNormParams& params, float squares) {
  return 1.0F / sqrtf(squares / static_cast<float>(params.columns) + params.eps);
}

/// sum += factor x scale weight; returns the thread's share of the squares of what comes of it.
__device__ float add_row(
    const AddNormParams& params, const RowWalk& walk, const float* x, float scale, float* sum) {
  const auto added = [&](float value, float weight) {
    return params.factor * (value * scale * weight);
  };
  const bool weighed = params.weight != nullptr;
  float all = 0.0F;
  for (std::int32_t i = walk.first; i < walk.columns; i += walk.step) {
    if (params.quads == 0) {
      sum[i] += added(x[i], weighed ? params.weight[i] : 1.0F);
      all += square(sum[i]);
      continue;
    }
    const float4 value = load_quad(x, i);
    const float4 weight =
        weighed ? load_quad(params.weight, i) : make_float4(1.0F, 1.0F, 1.0F, 1.0F);
    float4 total = load_quad(sum, i);
    total.x += added(value.x, weight.x);
    total.y += added(value.y, weight.y);
    total.z += added(value.z, weight.z);
    total.w += added(value.w, weight.w);
    store_quad(sum, i, total);
    all += squares(total);
  }
  return all;
}

/// next = sum scale weight. A thread reads what it wrote itself.
template <class Out>
__device__ void hand_on(const AddNormParams& params, const float* sum, float scale, Out* next) {
  const bool weighed = params.next_weight != nullptr;
  fill_row(
      next,
      params.columns,
      params.quads != 0,
      threadIdx.x,
      blockDim.x,
      [&](std::int64_t i) { return weighed ? sum[i] * scale * params.next_weight[i] : sum[i]; },
      [&](std::int64_t i) {
        const float4 quad = load_quad(sum, i);
        if (!weighed) {
          return quad;
        }
        const float4 weight = load_quad(params.next_weight, i);
        return make_float4(quad.x * scale * weight.x,
                           quad.y * scale * weight.y,
                           quad.z * scale * weight.z,
                           quad.w * scale * weight.w);
      });
}

}  // namespace

HEDDLE_KERNEL(heddle_add_norm, AddNormParams, kNormThreadsMax) {
  __shared__ float of_x[kBlockWarpsMax];
  __shared__ float of_sum[kBlockWarpsMax];
  const RowWalk walk(params);
  const float* const x = params.x + blockIdx.x * params.x_stride;
  float* const sum = params.sum + blockIdx.x * params.sum_stride;
  float scale = 1.0F;
  if (params.weight != nullptr) {
    scale = scale_of(params, block_sum(squares_of_row(params, walk, x), of_x));
  }
  const float squares = add_row(params, walk, x, scale, sum);
  if (params.next == nullptr) {
    return;
  }
  scale = params.next_weight != nullptr ? scale_of(params, block_sum(squares, of_sum)) : 1.0F;
  if (params.next_bf16 != 0) {
    hand_on(params,
            sum,
            scale,
            static_cast<std::uint16_t*>(params.next) + blockIdx.x * params.next_stride);
  } else {
    hand_on(params, sum, scale, static_cast<float*>(params.next) + blockIdx.x * params.next_stride);
  }
}

}  // namespace heddle::ops::cuda
