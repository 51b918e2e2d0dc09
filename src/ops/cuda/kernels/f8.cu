#include "ops/cuda/kernels/f8_params.h"
#include "ops/cuda/kernels/warp.cuh"

namespace heddle::ops::cuda {
namespace {

/// The nearest E4M3, ties to even. Requires |value| < 464, which is half way to what there is none
/// for. Without instructions of sm_89: that GPU runs code for sm_80.
__device__ std::uint32_t e4m3_of(float value) {
  constexpr float kLeastNormal = 0x1p-6F;
  constexpr float kWhole = 0x1p14F;  // Floats from there on are multiples of 2^-9.
  constexpr std::uint32_t kBiases = (127 - 7) << 3U;
  const float magnitude = fabsf(value);
  const std::uint32_t bits = float_bits(magnitude);
  const std::uint32_t normal = ((bits + 0x7ffffU + (bits >> 20U & 1U)) >> 20U) - kBiases;
  const std::uint32_t code =
      magnitude < kLeastNormal ? float_bits(magnitude + kWhole) & 0xfU : normal;
  return code | (float_bits(value) >> 24U & 0x80U);
}

__device__ float larger(float largest, float value) {
  const float infinity = bits_float(0x7f800000U);
  const float magnitude = fabsf(value);
  return fmaxf(largest, magnitude <= infinity ? magnitude : infinity);  // NaN counts as infinite.
}

__device__ std::uint32_t four_of(std::uint32_t first, std::uint32_t second, float factor) {
  return e4m3_of(bf16_low(first) * factor) | e4m3_of(bf16_high(first) * factor) << 8U |
         e4m3_of(bf16_low(second) * factor) << 16U | e4m3_of(bf16_high(second) * factor) << 24U;
}

}  // namespace
}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_f8_tokens, heddle::ops::cuda::F8TokensParams, heddle::ops::cuda::kF8Threads) {
  using namespace heddle::ops::cuda;
  constexpr int kEach = 8;  // Numbers that a lane moves at once.
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * (kF8Threads / kWarpThreads) +
                             threadIdx.x / kWarpThreads;
  if (token >= params.tokens) {
    return;
  }
  const auto* const x = reinterpret_cast<const uint4*>(params.x + token * params.x_stride);
  const int parts = params.inputs / kEach;
  float largest = 0.0F;
  for (int i = static_cast<int>(lane_index()); i < parts; i += static_cast<int>(kWarpThreads)) {
    const uint4 eight = x[i];
    const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
    for (const std::uint32_t pair : pairs) {
      largest = larger(larger(largest, bf16_low(pair)), bf16_high(pair));
    }
  }
  largest = warp_max(largest);
  const bool finite = largest < bits_float(0x7f800000U);
  const bool some = finite && largest >= kF8Least;
  const float factor = some ? kF8Largest / largest : 0.0F;
  auto* const out = reinterpret_cast<uint2*>(params.out + token * params.inputs);
  for (int i = static_cast<int>(lane_index()); i < parts; i += static_cast<int>(kWarpThreads)) {
    const uint4 eight = x[i];
    out[i] = some ? make_uint2(four_of(eight.x, eight.y, factor), four_of(eight.z, eight.w, factor))
                  : make_uint2(0, 0);
  }
  if (lane_index() == 0) {
    params.scale[token] = some ? largest / kF8Largest : finite ? 0.0F : bits_float(0x7fc00000U);
  }
}

// 32 inputs of a panel are 512 bytes: a lane has four inputs of four rows, and eight lanes write 32
// bytes of a row.
HEDDLE_KERNEL(heddle_f8_rows, heddle::ops::cuda::F8RowsParams, heddle::ops::cuda::kF8Threads) {
  using namespace heddle::ops::cuda;
  constexpr int kRows = 16;
  constexpr int kBlockParts = 4;
  constexpr int kHeadBytes = kRows * static_cast<int>(sizeof(float));
  constexpr int kPartBytes = kRows * 32;
  constexpr int kBlockBytes = kHeadBytes + kBlockParts * kPartBytes;
  const int parts = params.inputs / 32;
  const int lane = static_cast<int>(lane_index());
  const int warps = static_cast<int>(gridDim.y * (kF8Threads / kWarpThreads));
  int part =
      static_cast<int>(blockIdx.y * (kF8Threads / kWarpThreads) + threadIdx.x / kWarpThreads);
  const std::byte* const panel =
      params.weight + static_cast<std::int64_t>(blockIdx.x) * (parts / kBlockParts) * kBlockBytes;
  if (part == 0 && lane < kRows) {
    params.scale[static_cast<std::int64_t>(blockIdx.x) * kRows + lane] =
        reinterpret_cast<const float*>(panel)[lane];
  }
  const int first_row = lane % 4 * 4;
  std::byte* const out =
      params.out + (static_cast<std::int64_t>(blockIdx.x) * kRows + first_row) * params.inputs +
      lane / 4 * 4;
  for (; part < parts; part += warps) {
    const std::byte* const quants = panel +
                                    static_cast<std::int64_t>(part / kBlockParts) * kBlockBytes +
                                    kHeadBytes + part % kBlockParts * kPartBytes;
    const uint4 rows = reinterpret_cast<const uint4*>(quants)[lane];
    const std::uint32_t words[4] = {rows.x, rows.y, rows.z, rows.w};
    for (int row = 0; row < 4; ++row) {
      *reinterpret_cast<std::uint32_t*>(out + static_cast<std::int64_t>(row) * params.inputs +
                                        part * 32) = words[row];
    }
  }
}

HEDDLE_KERNEL(heddle_f8_scaled, heddle::ops::cuda::F8ScaledParams, heddle::ops::cuda::kF8Threads) {
  using namespace heddle::ops::cuda;
  const int output = static_cast<int>(blockIdx.x * kF8Threads + threadIdx.x);
  if (output >= params.outputs) {
    return;
  }
  const float row_scale = params.row_scale[output];
  const float bias = params.bias != nullptr ? params.bias[output] : 0.0F;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kF8ScaledTokens;
  float sums[kF8ScaledTokens];
  for (int i = 0; i < kF8ScaledTokens; ++i) {
    const std::int64_t token = first + i;
    if (token < params.tokens) {
      sums[i] = params.product[token * params.product_stride + output] * params.token_scale[token] *
                    row_scale +
                bias;
      sums[i] += params.residual != nullptr
                     ? params.residual[token * params.residual_stride + output]
                     : 0.0F;
    }
  }
  for (int i = 0; i < kF8ScaledTokens; ++i) {
    const std::int64_t token = first + i;
    const std::int64_t at = token * params.out_stride + output;
    if (token >= params.tokens) {
      continue;
    }
    if (params.out_bf16) {
      reinterpret_cast<std::uint16_t*>(params.out)[at] = to_bf16(sums[i]);
    } else {
      reinterpret_cast<float*>(params.out)[at] = sums[i];
    }
  }
}
