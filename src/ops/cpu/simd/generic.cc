#include "ops/cpu/simd/kernels.inc"

namespace heddle::ops::cpu {

const SimdKernels& simd_generic() {
  static constexpr SimdKernels kKernels = make_simd_kernels("generic");
  return kKernels;
}

}  // namespace heddle::ops::cpu
