#include "ops/cpu/simd/kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace heddle::ops::cpu {
namespace {

#ifdef __x86_64__
/// CPUID leaf 7: bits 22 (bfloat16), 24 (tiles) and 25 (int8) of EDX.
bool has_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22U & 1U) != 0 &&
         (d >> 24U & 1U) != 0 && (d >> 25U & 1U) != 0;
}
#endif

}  // namespace

#ifdef __x86_64__
bool amx_usable() {
  // The registers are large, so the kernel saves them for processes that ask.
  static const bool usable = [] {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16") &&
           has_amx() && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return usable;
}
#endif

const SimdKernels& simd_kernels() {
#ifdef __x86_64__
  if (amx_usable()) {
    return simd_x86_amx();
  }
  if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16")) {
    return simd_x86_bf16();
  }
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
