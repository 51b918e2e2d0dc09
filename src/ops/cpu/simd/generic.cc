#include "ops/cpu/simd/kernels.inc"

namespace heddle::ops::cpu {

const SimdKernels kSimdGeneric = make_simd_kernels("generic");

}  // namespace heddle::ops::cpu
