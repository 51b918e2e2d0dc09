#pragma once

#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/kernels/panel_params.h"
#include "ops/fused.h"
#include "ops/linear.h"

namespace heddle::ops::cuda {

/// Of up to so many tokens the warps of a block share outputs, so that a norm can follow.
inline constexpr std::int64_t kPanelThinTokens = 32;

/// How many tokens a block takes, of `tokens` in all.
[[nodiscard]] std::int64_t panel_tile_tokens(std::int64_t tokens);

/// Launches the kernel of `dtype` (blocks, or bfloat16 with experts) for tiles of `tile` tokens, of
/// which there are `tiles`.
void launch_panels(device::CudaStream& stream,
                   const PanelParams& params,
                   DType dtype,
                   std::int64_t tile,
                   std::int64_t tiles);

/// A product with blocks by the own kernels, and what is to follow it, of up to kPanelThinTokens.
void multiply_panels(device::CudaStream& stream, const LinearArgs& args, const ThenNorm& then);

/// linear() with blocks.
void linear_panels(device::CudaStream& stream, const LinearArgs& args);

/// linear_silu() with blocks; false where it is two operations.
bool silu_panels(device::CudaStream& stream, const LinearSiluArgs& args);

}  // namespace heddle::ops::cuda
