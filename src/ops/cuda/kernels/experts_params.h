#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/panel_params.h"

namespace heddle::ops::cuda {

/// Of heddle_choose_experts: a warp for each token. Strides count elements.
struct ChooseExpertsParams {
  const float* logits = nullptr;  ///< [tokens, experts]
  std::int64_t logits_stride = 0;
  std::int32_t* chosen = nullptr;  ///< [tokens, active]
  std::int64_t chosen_stride = 0;
  float* weights = nullptr;  ///< [tokens, active]
  std::int64_t weights_stride = 0;
  std::int32_t tokens = 0;
  std::int32_t experts = 0;
  std::int32_t active = 0;
  bool normalised = false;
};
constexpr std::uint32_t kChooseThreads = 128;
/// A lane has an expert that its token took, and marks as many as it has bits for.
constexpr std::int64_t kActiveExpertsMax = 32;
constexpr std::int64_t kExpertsMax = 1024;

/// Of heddle_plan_experts, one block: sorts what tokens chose by expert. A token and one of its
/// experts have a *slot*, those of an expert side by side.
struct PlanExpertsParams {
  const std::int32_t* chosen = nullptr;  ///< [tokens, active]
  std::int64_t chosen_stride = 0;
  std::int32_t tokens = 0;
  std::int32_t active = 0;
  std::int32_t experts = 0;
  std::int32_t tile_tokens = 0;   ///< At most, in a tile.
  ExpertTile* tiles = nullptr;    ///< Filled from the first on,
  std::int32_t* count = nullptr;  ///< so many.
  std::int32_t* rows = nullptr;   ///< By slot: the token.
  std::int32_t* slots = nullptr;  ///< [tokens, active]
};
constexpr std::uint32_t kPlanThreads = 512;

/// Of heddle_add_experts: block x makes row x of `out`, together with the others of that x.
struct AddExpertsParams {
  const float* product = nullptr;  ///< By slot, `columns` apart.
  const std::int32_t* slots = nullptr;
  const float* weights = nullptr;
  std::int64_t weights_stride = 0;
  const float* residual = nullptr;  ///< Or nullptr.
  std::int64_t residual_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t columns = 0;
  std::int32_t active = 0;
  bool quads = false;  ///< Rows of residual and out begin at multiples of four, as columns are.
};

/// Of heddle_share_rows: block x multiplies row x with the sigmoid of its gate.
struct ShareRowsParams {
  const float* gate = nullptr;
  std::int64_t gate_stride = 0;
  float* rows = nullptr;
  std::int64_t rows_stride = 0;
  std::int64_t columns = 0;
};

}  // namespace heddle::ops::cuda
