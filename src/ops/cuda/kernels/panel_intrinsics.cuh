#pragma once

#include "ops/cuda/kernels/intrinsics.cuh"

/// What panels of blocks need of the device beside intrinsics.cuh; defined there and here, as
/// there, once for the device and once for the emulated driver.
namespace heddle::ops::cuda {

/// Byte i of the result is byte `selector` / 16^i % 16 of eight: those of `a`, then those of `b`.
__device__ __forceinline__ std::uint32_t select_bytes(std::uint32_t a,
                                                      std::uint32_t b,
                                                      std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// a - b of two pairs of bfloat16, each rounded once. `b` is finite.
__device__ __forceinline__ std::uint32_t subtract_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kOnes = 0x3f803f80U;
  constexpr std::uint32_t kSigns = 0x80008000U;
  std::uint32_t difference;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(a), "r"(kOnes), "r"(b ^ kSigns));
  return difference;
}

/// a b of two pairs of bfloat16, each rounded once.
__device__ __forceinline__ std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMinusZeros = 0x80008000U;
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(kMinusZeros));
  return product;
}

/// The value of float16 bits.
__device__ __forceinline__ float from_f16(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

}  // namespace heddle::ops::cuda
