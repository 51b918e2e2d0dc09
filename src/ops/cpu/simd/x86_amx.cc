#include "ops/cpu/simd/kernels.inc"

#include <immintrin.h>

namespace heddle::ops::cpu {

#include "ops/cpu/simd/amx_attention.inc"
#include "ops/cpu/simd/amx_int8.inc"
#include "ops/cpu/simd/amx_linear.inc"

const SimdKernels& simd_x86_amx() {
  static constexpr SimdKernels kKernels = [] {
    SimdKernels kernels = make_simd_kernels("x86_amx");
    kernels.attention_bf16 = amx_attention;
    kernels.linear_bf16 = amx_linear;
    kernels.linear_int8 = amx_linear_int8;
    kernels.pack_tokens = pack_tokens;
    kernels.pack_tokens_int8 = amx_pack_tokens_int8;
    return kernels;
  }();
  return kKernels;
}

}  // namespace heddle::ops::cpu
