#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

const SimdKernels& simd_kernels() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v4")) {
    return kSimdX86V4;
  }
  if (__builtin_cpu_supports("x86-64-v3")) {
    return kSimdX86V3;
  }
#endif
  return kSimdGeneric;
}

}  // namespace heddle::ops::cpu
