#include "ops/cpu/simd/kernels.inc"

namespace heddle::ops::cpu {

const SimdKernels& simd_x86_vnni() {
  static constexpr SimdKernels kKernels = make_simd_kernels("avx_vnni");
  return kKernels;
}

}  // namespace heddle::ops::cpu
