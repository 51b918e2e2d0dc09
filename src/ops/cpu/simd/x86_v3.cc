#include "ops/cpu/simd/kernels.inc"

namespace heddle::ops::cpu {

const SimdKernels kSimdX86V3 = make_simd_kernels("x86_v3");

}  // namespace heddle::ops::cpu
