#pragma once

#include <cstdint>
#include <cstring>

/// Sixteen float lanes, and the few operations that kernels are written in. Included only by the
/// files that are compiled once per instruction set: everything here has internal linkage, so that
/// no function compiled for a newer processor can be chosen by the linker for an older one.
///
/// Each operation rounds once, lane by lane, in an order that the source fixes; so all instruction
/// sets give the same bits, only at different speeds (dot() but for subnormal numbers).
namespace heddle::ops::cpu {

constexpr std::int64_t kLanes = 16;

using F32x16 = float __attribute__((ext_vector_type(16)));
using U32x16 = std::uint32_t __attribute__((ext_vector_type(16)));
using U8x16 = std::uint8_t __attribute__((ext_vector_type(16)));
using U16x16 = std::uint16_t __attribute__((ext_vector_type(16)));
using U16x32 = std::uint16_t __attribute__((ext_vector_type(32)));
using I8x16 = std::int8_t __attribute__((ext_vector_type(16)));
using I8x32 = std::int8_t __attribute__((ext_vector_type(32)));
using I16x16 = std::int16_t __attribute__((ext_vector_type(16)));
using I16x32 = std::int16_t __attribute__((ext_vector_type(32)));
using I32x16 = std::int32_t __attribute__((ext_vector_type(16)));
using I64x16 = std::int64_t __attribute__((ext_vector_type(16)));
using F64x16 = double __attribute__((ext_vector_type(16)));

/// Lanes that one register of the instruction set has; sixteen are one, two or four of them.
#if defined(__AVX512F__)
constexpr std::int64_t kWidth = 16;
#elif defined(__AVX2__)
constexpr std::int64_t kWidth = 8;
#else
constexpr std::int64_t kWidth = 4;
#endif
using F32xW = float __attribute__((ext_vector_type(kWidth)));
using U32xW = std::uint32_t __attribute__((ext_vector_type(kWidth)));
using I32xW = std::int32_t __attribute__((ext_vector_type(kWidth)));
using I16x2W = std::int16_t __attribute__((ext_vector_type(2 * kWidth)));
using I8x2W = std::int8_t __attribute__((ext_vector_type(2 * kWidth)));

/// A bfloat16 as stored: the upper half of a float.
enum class Bf16 : std::uint16_t {};
/// An integer of a row that has a scale.
enum class Code : std::int8_t {};
/// An E4M3 of a row that has a scale (spec/f8_panels.h).
enum class E4m3 : std::uint8_t {};

#define HEDDLE_SIMD static inline __attribute__((always_inline))

/// A vector of any type from memory that need not be aligned.
template <class V>
HEDDLE_SIMD V load_as(const void* source) {
  V value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}

HEDDLE_SIMD F32x16 load(const float* source) {
  F32x16 value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}

HEDDLE_SIMD F32x16 load(const Bf16* source) {
  U16x16 half;
  std::memcpy(&half, source, sizeof(half));
  const U32x16 wide = __builtin_convertvector(half, U32x16) << 16U;
  return __builtin_bit_cast(F32x16, wide);
}

HEDDLE_SIMD F32x16 load(const Code* source) {
  return __builtin_convertvector(__builtin_convertvector(load_as<I8x16>(source), I32x16), F32x16);
}

/// Exponent and mantissa of E4M3 move into place; the exponent's bias is 127 there and 7 here.
HEDDLE_SIMD F32x16 widened_e4m3(U32x16 codes) {
  const U32x16 moved = (codes & 0x7fU) << 20U | (codes & 0x80U) << 24U;
  return __builtin_bit_cast(F32x16, moved) * 0x1p120F;
}

/// What loaded E4M3 are to be multiplied with: the same bits, moved, are halves of 2^-8 times the
/// number.
constexpr float kLoadedE4m3 = 0x1p8F;
HEDDLE_SIMD F32x16 load(const E4m3* source) {
#ifdef __F16C__
  using F16x16 = _Float16 __attribute__((ext_vector_type(16)));
  const auto wide = __builtin_convertvector(load_as<I8x16>(source), I16x16);
  const U16x16 moved = __builtin_bit_cast(U16x16, wide) << 7U & 0xbfffU;
  return __builtin_convertvector(__builtin_bit_cast(F16x16, moved), F32x16);
#else
  return widened_e4m3(__builtin_convertvector(load_as<U8x16>(source), U32x16)) * (1 / kLoadedE4m3);
#endif
}

/// The float that is the same number.
HEDDLE_SIMD float widened(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16U);
}

/// The first `count` < 16 elements, then zeros.
template <class T>
HEDDLE_SIMD F32x16 load_part(const T* source, std::int64_t count) {
  T padded[kLanes] = {};
  std::memcpy(padded, source, static_cast<std::size_t>(count) * sizeof(T));
  return load(padded);
}

HEDDLE_SIMD void store(float* target, F32x16 value) {
  std::memcpy(target, &value, sizeof(value));
}

/// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
HEDDLE_SIMD void store(Bf16* target, F32x16 value) {
  const U32x16 bits = __builtin_bit_cast(U32x16, value);
  const U32x16 nearest = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  const U32x16 quiet = (bits >> 16U) | 0x40U;
  const U16x16 half = __builtin_convertvector(value == value ? nearest : quiet, U16x16);
  std::memcpy(target, &half, sizeof(half));
}

template <class T>
HEDDLE_SIMD void store_part(T* target, F32x16 value, std::int64_t count) {
  T padded[kLanes];
  store(padded, value);
  std::memcpy(target, padded, static_cast<std::size_t>(count) * sizeof(T));
}

/// a * b + c, rounded once.
HEDDLE_SIMD F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return __builtin_elementwise_fma(a, b, c);
}

/// Larger of each pair; b where they do not compare.
HEDDLE_SIMD F32x16 max(F32x16 a, F32x16 b) {
  return a > b ? a : b;
}

/// The one reduction tree: halves are added, then their halves, down to one value.
HEDDLE_SIMD float sum(F32x16 a) {
  const auto s8 = a.lo + a.hi;
  const auto s4 = s8.lo + s8.hi;
  const auto s2 = s4.lo + s4.hi;
  return s2.x + s2.y;
}

HEDDLE_SIMD float largest(F32x16 a) {
  const auto m8 = a.lo > a.hi ? a.lo : a.hi;
  const auto m4 = m8.lo > m8.hi ? m8.lo : m8.hi;
  const auto m2 = m4.lo > m4.hi ? m4.lo : m4.hi;
  return m2.x > m2.y ? m2.x : m2.y;
}

/// Lane j of the answer is sum(rows[j]), to the bit; 45 operations instead of sixteen trees.
template <class V>
HEDDLE_SIMD V sum_each(const V (&rows)[kLanes]) {
  V by8[8];
  for (int i = 0; i < 8; ++i) {  // Rows i and i + 8, halved once: 8 partial sums each.
    const V a = rows[i];
    const V b = rows[i + 8];
    by8[i] =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  V by4[4];
  for (int i = 0; i < 4; ++i) {  // Rows i, i + 4, i + 8, i + 12: 4 partial sums each.
    const V a = by8[i];
    const V b = by8[i + 4];
    by4[i] =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
        __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  V by2[2];
  for (int i = 0; i < 2; ++i) {
    const V a = by4[i];
    const V b = by4[i + 2];
    by2[i] =
        __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
        __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  return __builtin_shufflevector(
             by2[0], by2[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
         __builtin_shufflevector(
             by2[0], by2[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

/// e^x to 2 ulp for x <= 88.3, and e^88.3 above; 0 below -87.3; NaN for NaN. Range reduction to
/// [-ln 2 / 2, ln 2 / 2] and the minimax polynomial of Cephes' expf.
HEDDLE_SIMD F32x16 exp(F32x16 x) {
  constexpr float kRound =
      12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits.
  const F32x16 bounded = x > 88.3F ? F32x16(88.3F) : x;
  const F32x16 shifted = fma(bounded, F32x16(1.44269504088896341F), F32x16(kRound));
  const F32x16 n = shifted - kRound;
  F32x16 r = fma(n, F32x16(-0.693359375F), bounded);
  r = fma(n, F32x16(2.12194440e-4F), r);
  F32x16 p = fma(F32x16(1.9875691500e-4F), r, F32x16(1.3981999507e-3F));
  p = fma(p, r, F32x16(8.3334519073e-3F));
  p = fma(p, r, F32x16(4.1665795894e-2F));
  p = fma(p, r, F32x16(1.6666665459e-1F));
  p = fma(p, r, F32x16(5.0000001201e-1F));
  p = fma(p * r, r, r) + 1.0F;
  const U32x16 exponent = __builtin_bit_cast(U32x16, shifted) << 23U;  // The rest is shifted out.
  const F32x16 scaled = __builtin_bit_cast(F32x16, __builtin_bit_cast(U32x16, p) + exponent);
  return x < -87.3F ? F32x16(0.0F) : (x == x ? scaled : x);
}

/// tanh(x) to 4 ulp; NaN for NaN. Near zero the polynomial of Cephes' tanhf.
HEDDLE_SIMD F32x16 tanh(F32x16 x) {
  const F32x16 square = x * x;
  F32x16 p = fma(F32x16(-5.70498872745e-3F), square, F32x16(2.06390887954e-2F));
  p = fma(p, square, F32x16(-5.37397155531e-2F));
  p = fma(p, square, F32x16(1.33314442036e-1F));
  p = fma(p, square, F32x16(-3.33332819422e-1F));
  const F32x16 near = fma(p * square, x, x);
  const F32x16 far = 1.0F - 2.0F / (exp(x + x) + 1.0F);
  return (x > 0.625F | x < -0.625F) ? far : near;
}

/// c tanh(x / c).
HEDDLE_SIMD F32x16 soft_cap(F32x16 x, float cap) {
  return tanh(x / cap) * cap;
}

}  // namespace heddle::ops::cpu
