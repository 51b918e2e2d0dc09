#pragma once

#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

/// The kernels for the tile unit (AMX), whose instructions plain code carries out: for processors
/// that have all the rest, the set avx512_bf16.
const SimdKernels& simd_emulated_amx();

}  // namespace heddle::ops::cpu
