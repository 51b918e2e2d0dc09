#pragma once

#include "ops/cuda/kernels/rms_norm_params.h"
#include "ops/rms_norm.h"

namespace heddle::ops::cuda {

/// How heddle_rms_norm is told of a normalisation.
[[nodiscard]] RmsNormParams norm_params(const RmsNormArgs& args);
/// Threads that do a vector: a warp does short ones. It fixes the order of sums.
[[nodiscard]] std::int32_t norm_threads(const RmsNormParams& params);

}  // namespace heddle::ops::cuda
