#include "ops/cpu/simd/kernels.inc"

namespace heddle::ops::cpu {

const SimdKernels kSimdX86V4 = make_simd_kernels("x86_v4");

}  // namespace heddle::ops::cpu
