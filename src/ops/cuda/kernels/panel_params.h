#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/linear_params.h"

namespace heddle::ops::cuda {

/// Tokens that a block multiplies with the same expert: slots [first, first + count).
struct ExpertTile {
  std::int32_t expert = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
};

/// Of products with the matrices of experts, which lie one after the other.
struct ExpertTiles {
  const ExpertTile* tiles = nullptr;    ///< One for each y of the grid; nullptr: no experts.
  const std::int32_t* count = nullptr;  ///< How many there are; further y do nothing.
  const std::int32_t* rows = nullptr;   ///< By slot, the row of `x`; nullptr: that of the slot.
  std::int64_t weight_bytes = 0;        ///< Of an expert's matrix.
  const float* bias = nullptr;          ///< Of the first expert's outputs, or nullptr.
  std::int64_t bias_stride = 0;         ///< From expert to expert.
  float limit = 0.0F;                   ///< Of gates and ups, as the next: ops::SiluMulArgs.
  float gain = 1.0F;
};

/// Of products whose weights are in panels, and of those with experts (panel_product.cuh). `weight`
/// and `outputs` are of the first expert; rows of `out` are slots then. `aligned`: four inputs of
/// `x` begin at multiples of eight bytes.
struct PanelParams {
  LinearParams linear{};
  ExpertTiles experts{};
};

constexpr std::uint32_t kPanelWarps = 4;
constexpr std::uint32_t kPanelThreads = 32 * kPanelWarps;
/// Outputs of a block of few tokens, whose warps share them, and of a warp of many.
constexpr std::int64_t kPanelOutputs = 32;
/// Tokens of a block of many.
constexpr std::int64_t kPanelTokens = 64;

/// What a matrix of panels is of: its place in the tables of kernels.
enum class PanelType : std::int32_t { kQ80, kQ40, kQ41, kQ50, kQ51, kQ4K, kQ5K, kQ6K, kMxfp4, kF8 };

/// Of heddle_panel_rows, whose warps take turns at parts of 32 inputs: all rows of a matrix become
/// bfloat16, one behind the other, sixteen of them by the blocks of one x; or, where `rows` is not
/// nullptr, row rows[x] - `first` becomes float32, or zeros where there is none.
struct PanelRowsParams {
  const std::byte* weight = nullptr;
  PanelType type = PanelType::kQ80;
  std::int32_t inputs = 0;
  std::int64_t outputs = 0;
  std::byte* out = nullptr;
  const std::int32_t* rows = nullptr;
  std::int64_t first = 0;
  std::int64_t out_stride = 0;  ///< Of rows that are float32, in elements.
};

constexpr std::uint32_t kPanelRowsThreads = 128;

}  // namespace heddle::ops::cuda
