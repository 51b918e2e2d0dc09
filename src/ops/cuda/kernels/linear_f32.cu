#include "ops/cuda/kernels/linear_kinds.cuh"
#include "ops/cuda/kernels/warp.cuh"

/// Products in float32, for which tensor cores are not exact enough: each output is one chain of
/// fused multiply-adds per lane (thin) or per thread (tile).
namespace heddle::ops::cuda {

__device__ inline const float* row_of(const std::byte* x, std::int64_t stride, int token) {
  return reinterpret_cast<const float*>(x + token * stride);
}

constexpr int kDepth = 16;  // Inputs of a tile that are in shared memory at once.
constexpr int kSide = 64;   // Outputs and tokens of a tile; a thread has 4 x 4 of them.
constexpr int kOwn = 4;
static_assert(kSide == kTileF32Outputs && kSide == kTileF32Tokens);
static_assert(kSide / kOwn * (kSide / kOwn) == kTileThreads);

/// Brings kDepth inputs of kSide rows to shared memory, input after input; zeros beyond the end.
/// `row_at(i)` is row i, nullptr where there is none.
template <class RowAt>
__device__ void fetch_side(float (&side)[kDepth][kSide + 1], RowAt row_at, int first, int inputs) {
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kTileThreads) {
    const int input = first + i % kDepth;
    const float* row = row_at(i / kDepth);
    side[i % kDepth][i / kDepth] = row != nullptr && input < inputs ? row[input] : 0.0F;
  }
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_linear_thin_f32,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinF32Threads) {
  using namespace heddle::ops::cuda;
  const int output = static_cast<int>(blockIdx.x * kThinF32Outputs + threadIdx.x / 32);
  if (output >= params.outputs) {
    return;
  }
  const auto* weight = reinterpret_cast<const float*>(params.weight) +
                       static_cast<std::int64_t>(output) * params.inputs;
  float sums[kThinF32Tokens] = {};
#pragma unroll 4
  for (int i = static_cast<int>(lane_index()); i < params.inputs; i += 32) {
    const float w = weight[i];
    for (int token = 0; token < kThinF32Tokens; ++token) {
      if (token < params.tokens) {
        sums[token] = fmaf(row_of(params.x, params.x_stride, token)[i], w, sums[token]);
      }
    }
  }
  const float sum = warp_sums(sums);
  constexpr int kLanes = 32 / kThinF32Tokens;  // Of a token.
  const int lane = static_cast<int>(lane_index());
  if (lane % kLanes == 0 && lane / kLanes < params.tokens) {
    store_output(params, lane / kLanes, output, sum);
  }
}

HEDDLE_KERNEL(heddle_linear_tile_f32,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kTileThreads) {
  using namespace heddle::ops::cuda;
  __shared__ float weights[kDepth][kSide + 1];
  __shared__ float tokens[kDepth][kSide + 1];
  const int first_output = static_cast<int>(blockIdx.x) * kSide;
  const int first_token = static_cast<int>(blockIdx.y) * kSide;
  const int own_output = static_cast<int>(threadIdx.x) % (kSide / kOwn);
  const int own_token = static_cast<int>(threadIdx.x) / (kSide / kOwn) * kOwn;
  const auto weight_row = [&](int i) {
    return first_output + i < params.outputs
               ? reinterpret_cast<const float*>(params.weight) +
                     static_cast<std::int64_t>(first_output + i) * params.inputs
               : nullptr;
  };
  const auto token_row = [&](int i) {
    return first_token + i < params.tokens ? row_of(params.x, params.x_stride, first_token + i)
                                           : nullptr;
  };
  float sums[kOwn][kOwn] = {};
  for (int first = 0; first < params.inputs; first += kDepth) {
    fetch_side(weights, weight_row, first, params.inputs);
    fetch_side(tokens, token_row, first, params.inputs);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      for (int t = 0; t < kOwn; ++t) {
        for (int o = 0; o < kOwn; ++o) {
          // A thread's outputs are kSide / kOwn apart, so that a warp stores side by side.
          sums[t][o] = fmaf(
              tokens[k][own_token + t], weights[k][own_output + o * (kSide / kOwn)], sums[t][o]);
        }
      }
    }
    __syncthreads();
  }
  for (int t = 0; t < kOwn; ++t) {
    for (int o = 0; o < kOwn; ++o) {
      const int output = first_output + own_output + o * (kSide / kOwn);
      const int token = first_token + own_token + t;
      if (output < params.outputs && token < params.tokens) {
        store_output(params, token, output, sums[t][o]);
      }
    }
  }
}
