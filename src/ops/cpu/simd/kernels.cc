#include "ops/cpu/simd/kernels.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "ops/cpu/simd/choice.h"

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

bool has_bf16() {
  return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

#ifdef __x86_64__
bool amx_usable() {
  // The registers are large, so the kernel saves them for processes that ask.
  static const bool usable = [] {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return has_bf16() && has_amx() && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return usable;
}
#endif

std::vector<const SimdKernels*> runnable_simd_kernels() {
  std::vector<const SimdKernels*> sets{&simd_generic()};
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v3")) {
    sets.push_back(&simd_x86_v3());
  }
  if (__builtin_cpu_supports("x86-64-v3") && __builtin_cpu_supports("avxvnni")) {
    sets.push_back(&simd_x86_vnni());
  }
  if (__builtin_cpu_supports("x86-64-v4")) {
    sets.push_back(&simd_x86_v4());
  }
  if (has_bf16()) {
    sets.push_back(&simd_x86_bf16());
  }
  if (amx_usable()) {
    sets.push_back(&simd_x86_amx());
  }
#endif
  return sets;
}

Result<const SimdKernels*> find_simd_kernels(const char* name) {
  const std::vector<const SimdKernels*> sets = runnable_simd_kernels();
  if (name == nullptr || *name == '\0') {
    return sets.back();
  }
  std::string possible;
  for (const SimdKernels* set : sets) {
    if (std::string_view(set->name) == name) {
      return set;
    }
    possible += (possible.empty() ? "" : ", ") + std::string(set->name);
  }
  return Error{.code = Code::kInvalidArgument,
               .message = "take the kernels that HEDDLE_SIMD names, '" + std::string(name) +
                          "': this processor runs " + possible};
}

Result<const SimdKernels*> chosen_simd_kernels() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment.
  return find_simd_kernels(std::getenv("HEDDLE_SIMD"));
}

const SimdKernels& simd_kernels() {
  static const SimdKernels& kernels = []() -> const SimdKernels& {
    const Result<const SimdKernels*> chosen = chosen_simd_kernels();
    if (!chosen) {
      std::fprintf(stderr, "%s\n", chosen.error().message.c_str());
    }
    HEDDLE_CHECK(chosen.has_value());
    return **chosen;
  }();
  return kernels;
}

}  // namespace heddle::ops::cpu
