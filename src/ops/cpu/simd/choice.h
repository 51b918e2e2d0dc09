#pragma once

#include <vector>

#include "base/result.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

/// The instruction sets that this processor runs, the slowest first.
[[nodiscard]] std::vector<const SimdKernels*> runnable_simd_kernels();

/// The set of that name, or the fastest for nullptr and "". kInvalidArgument says what is possible.
[[nodiscard]] Result<const SimdKernels*> find_simd_kernels(const char* name);

/// What simd_kernels() will take: find_simd_kernels of the environment's HEDDLE_SIMD.
[[nodiscard]] Result<const SimdKernels*> chosen_simd_kernels();

}  // namespace heddle::ops::cpu
