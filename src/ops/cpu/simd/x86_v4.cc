#include "ops/cpu/simd/kernels.inc"

namespace heddle::ops::cpu {

const SimdKernels& simd_x86_v4() {
  static constexpr SimdKernels kKernels = make_simd_kernels("avx512");
  return kKernels;
}

}  // namespace heddle::ops::cpu
