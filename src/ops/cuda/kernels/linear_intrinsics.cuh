#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

/// What products need of the device beside intrinsics.cuh; defined there and here, as there, once
/// for the device and once for the emulated driver.
namespace heddle::ops::cuda {

/// a * b rounded, which no addition after it is fused with.
__device__ __forceinline__ float multiply_rounded(float a, float b) {
  return __fmul_rn(a, b);
}

/// d += a b for a [16, 32] in int8 and b [32, 8] in int8, or in uint8, d in int32. With g = lane /
/// 4 and t = lane % 4, a lane holds
///     a: rows g and g + 8 by turns, of columns 4t to 4t + 3, then of columns 4t + 16 to 4t + 19
///     b: rows 4t to 4t + 3, then 4t + 16 to 4t + 19, of column g
///     d: columns (2t, 2t + 1) of row g, then of row g + 8
__device__ __forceinline__ void mma_int8(int (&d)[4],
                                         const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_int8_uint8(int (&d)[4],
                                               const std::uint32_t (&a)[4],
                                               const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace heddle::ops::cuda
