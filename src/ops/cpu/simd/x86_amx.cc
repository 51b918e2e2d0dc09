#include "ops/cpu/simd/kernels.inc"

#include <immintrin.h>

namespace heddle::ops::cpu {
namespace {

#include "ops/cpu/simd/amx_attention.inc"
#include "ops/cpu/simd/amx_int8.inc"
#include "ops/cpu/simd/amx_linear.inc"

}  // namespace

const SimdKernels& simd_x86_amx() {
  static constexpr SimdKernels kKernels = [] {
    SimdKernels kernels = make_simd_kernels("amx");
    kernels.attention_bf16 = amx_attention<Bf16>;
    kernels.attention_int8 = amx_attention<Code>;
    kernels.attention_f8 = amx_attention<E4m3>;
    kernels.attention_step = kStepPositions;
    kernels.linear_bf16.multiply = amx_linear;
    kernels.linear_bf16.pack = amx_pack_tokens;
    kernels.linear_int8.multiply = amx_linear_int8;
    kernels.linear_int8.pack = amx_pack_tokens_int8;
    return kernels;
  }();
  return kKernels;
}

}  // namespace heddle::ops::cpu
