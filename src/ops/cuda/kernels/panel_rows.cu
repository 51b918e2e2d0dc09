#include "ops/cuda/kernels/linear_intrinsics.cuh"
#include "ops/cuda/kernels/panel_formats.cuh"
#include "ops/cuda/kernels/panel_params.h"

/// Rows out of panels, as numbers.
namespace heddle::ops::cuda {
namespace {

/// A lane's numbers of a part: of row g and of row g + 8, four of each half.
struct PartNumbers {
  float numbers[2][2][4];
};

template <class Format>
__device__ PartNumbers numbers_of(const Format& source, int part) {
  const auto at = source.place(part);
  std::uint32_t a[2][4];
  Format::operands(at, a);
  PartNumbers out;
  for (int i = 0; i < 2; ++i) {
    const PanelScales scales = Format::scales(at, static_cast<int>(lane_index()) / 4 + 8 * i);
    for (int half = 0; half < 2; ++half) {
      const float scale = Format::kHalves && half == 1 ? scales.second : scales.first;
      const std::uint32_t pairs[2] = {a[half][i], a[half][i + 2]};
      for (int k = 0; k < 4; ++k) {
        const float integer = k % 2 == 0 ? bf16_low(pairs[k / 2]) : bf16_high(pairs[k / 2]);
        const float number = multiply_rounded(scale, integer);
        out.numbers[i][half][k] = Format::kMinimum ? number + scales.second : number;
      }
    }
  }
  return out;
}

template <class Format>
__device__ void unpack(const PanelRowsParams& params) {
  const Format source(params.weight, 0, params.inputs, static_cast<int>(blockIdx.x) * 16);
  const int warps = static_cast<int>(gridDim.y) * static_cast<int>(kPanelRowsThreads / 32);
  int part = static_cast<int>(blockIdx.y * (kPanelRowsThreads / 32) + threadIdx.x / 32);
  for (; part < params.inputs / 32; part += warps) {
    const PartNumbers own = numbers_of(source, part);
    for (int i = 0; i < 2; ++i) {
      const int row =
          static_cast<int>(blockIdx.x) * 16 + static_cast<int>(lane_index()) / 4 + 8 * i;
      for (int half = 0; half < 2; ++half) {
        const float(&four)[4] = own.numbers[i][half];
        const std::int64_t at =
            static_cast<std::int64_t>(row) * params.inputs + part * 32 + Format::x_place(half);
        if (row < params.outputs) {
          *reinterpret_cast<uint2*>(params.out + at * 2) =
              make_uint2(to_bf16_pair(four[0], four[1]), to_bf16_pair(four[2], four[3]));
        }
      }
    }
  }
}

template <class Format>
__device__ void gather(const PanelRowsParams& params) {
  const std::int64_t row = params.rows[blockIdx.x] - params.first;
  const bool has = row >= 0 && row < params.outputs;
  const Format source(params.weight, 0, params.inputs, has ? static_cast<int>(row) : 0);
  auto* const out = reinterpret_cast<float*>(params.out) + blockIdx.x * params.out_stride;
  const int within = has ? static_cast<int>(row % 16) : 0;
  const int warps = static_cast<int>(kPanelRowsThreads / 32);
  for (int part = static_cast<int>(threadIdx.x) / 32; part < params.inputs / 32; part += warps) {
    const PartNumbers own = numbers_of(source, part);
    if (static_cast<int>(lane_index()) / 4 != within % 8) {
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < 4; ++k) {
        const float number = within < 8 ? own.numbers[0][half][k] : own.numbers[1][half][k];
        out[part * 32 + Format::x_place(half) + k] = has ? number : 0.0F;
      }
    }
  }
}

/// `rows`: the one or the other.
template <class Format>
__device__ void take(const PanelRowsParams& params) {
  if (params.rows != nullptr) {
    gather<Format>(params);
  } else {
    unpack<Format>(params);
  }
}

}  // namespace
}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_panel_rows,
              heddle::ops::cuda::PanelRowsParams,
              heddle::ops::cuda::kPanelRowsThreads) {
  using namespace heddle::ops::cuda;
  switch (params.type) {
    case PanelType::kQ80:
      return take<PanelsQ80>(params);
    case PanelType::kQ40:
      return take<PanelsQ40>(params);
    case PanelType::kQ41:
      return take<PanelsQ41>(params);
    case PanelType::kQ50:
      return take<PanelsQ50>(params);
    case PanelType::kQ51:
      return take<PanelsQ51>(params);
    case PanelType::kQ4K:
      return take<PanelsQ4K>(params);
    case PanelType::kQ5K:
      return take<PanelsQ5K>(params);
    case PanelType::kQ6K:
      return take<PanelsQ6K>(params);
    case PanelType::kMxfp4:
      return take<PanelsMxfp4>(params);
    case PanelType::kF8:
      return take<PanelsF8>(params);
  }
}
