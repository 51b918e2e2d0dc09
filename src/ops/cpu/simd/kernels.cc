#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

const SimdKernels& simd_kernels() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v4")) {
    return simd_x86_v4();
  }
  if (__builtin_cpu_supports("x86-64-v3")) {
    return simd_x86_v3();
  }
#endif
  return simd_generic();
}

}  // namespace heddle::ops::cpu
