#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/bf16.h"
#include "spec/dtype.h"
#include "spec/f8_panels.h"

namespace heddle::ops {

/// The nearest E4M3 (spec::f32_of_e4m3()), ties to even, of a number of at most 464.
[[nodiscard]] inline std::uint8_t to_e4m3(float x) {
  constexpr float kLeastNormal = 0x1p-6F;
  constexpr float kRound = 0x1p23F;         // Adding it rounds to an integer,
  constexpr float kSubnormals = 0x1p9F;     // of which each stands for 2^-9.
  constexpr std::uint32_t kBias = 127 - 7;  // Of a float's exponent, beyond an E4M3's.
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 24U & 0x80U;
  const float size = std::abs(x);
  if (size < kLeastNormal) {
    return static_cast<std::uint8_t>(
        sign | static_cast<std::uint32_t>((size * kSubnormals + kRound) - kRound));
  }
  const std::uint32_t nearest = (bits & 0x7fff'ffffU) + 0x7'ffffU + (bits >> 20U & 1U);
  return static_cast<std::uint8_t>(sign | ((nearest >> 20U) - (kBias << 3U)));
}

/// The nearest integer, ties to even, of a number that is one of eight bits then.
[[nodiscard]] inline std::uint8_t to_int8(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer.
  return static_cast<std::uint8_t>(static_cast<std::int32_t>((x + kRound) - kRound));
}

/// Writes a head of a token as it lies in a cache of codes (PagedKv::scaled()): `head_dim` codes of
/// numbers c_i, and in another place their scale s, a bfloat16, so that
///
///     |x_i - s c_i| <= s / 2                        in int8, |c_i| <= M = 127
///     |x_i - s c_i| <= max(2^-4 |x_i|, 2^-10 s)     in FP8 (E4M3; kF8), |c_i| <= M = 448
///     s <= (1 + 2^-7) max_j |x_j| / M
///
/// whereby s is at least the smallest normal number. Where an element is not finite s is not a
/// number and the c_i are 0, so that whatever attends to the head shows it.
inline void put_kv_row(
    spec::DType type, const float* x, std::int64_t head_dim, std::byte* codes, std::byte* scale) {
  constexpr std::uint32_t kLeast = 0x0080'0000U;
  const bool e4m3 = type == spec::DType::kF8;
  const float code_max = e4m3 ? 448.0F : 127.0F;
  float largest = 0.0F;
  bool finite = true;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float size = std::abs(x[i]);
    largest = std::max(largest, size);
    finite &= size <= std::numeric_limits<float>::max();
  }
  // Rounded up, so that no number is beyond the largest.
  const auto exact = std::bit_cast<std::uint32_t>(finite ? largest / code_max : 0.0F);
  const std::uint32_t bits = std::max(kLeast, (exact + 0xffffU) & 0xffff'0000U);
  const auto factor = std::bit_cast<float>(bits);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float number = finite ? x[i] / factor : 0.0F;
    codes[i] = std::byte{e4m3 ? to_e4m3(number) : to_int8(number)};
  }
  const std::uint16_t stored = to_bf16(finite ? factor : std::numeric_limits<float>::quiet_NaN());
  std::memcpy(scale, &stored, sizeof(stored));
}

/// Element i of such a row.
[[nodiscard]] inline float kv_row_at(spec::DType type,
                                     const std::byte* codes,
                                     const std::byte* scale,
                                     std::int64_t i) {
  std::uint16_t stored = 0;
  std::memcpy(&stored, scale, sizeof(stored));
  const auto code = static_cast<std::uint8_t>(codes[i]);
  return from_bf16(stored) * (type == spec::DType::kF8
                                  ? spec::f32_of_e4m3(code)
                                  : static_cast<float>(static_cast<std::int8_t>(code)));
}

}  // namespace heddle::ops
