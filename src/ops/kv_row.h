#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/bf16.h"

namespace heddle::ops {

/// Writes a head of a token as it lies in a cache of int8 (PagedKv): `head_dim` integers c_i of at
/// most 127, and behind them a bfloat16 s, so that
///
///     |x_i - s c_i| <= s / 2,    s <= (1 + 2^-7) max_j |x_j| / 127
///
/// whereby s is at least the smallest normal number. Where an element is not finite s is not a
/// number, so that whatever attends to the head shows it.
inline void put_kv_row(const float* x, std::int64_t head_dim, std::byte* row) {
  constexpr float kCodeMax = 127.0F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer.
  constexpr std::uint32_t kLeast = 0x0080'0000U;
  float largest = 0.0F;
  bool finite = true;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float size = std::abs(x[i]);
    largest = std::max(largest, size);
    finite &= size <= std::numeric_limits<float>::max();
  }
  // Rounded up, so that no integer is beyond the largest.
  const auto exact = std::bit_cast<std::uint32_t>(finite ? largest / kCodeMax : 0.0F);
  const std::uint32_t bits = std::max(kLeast, (exact + 0xffffU) & 0xffff'0000U);
  const auto scale = std::bit_cast<float>(bits);
  auto* const codes = reinterpret_cast<std::int8_t*>(row);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    const float code = finite ? x[i] / scale : 0.0F;
    codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>((code + kRound) - kRound));
  }
  const std::uint16_t stored = to_bf16(finite ? scale : std::numeric_limits<float>::quiet_NaN());
  std::memcpy(row + head_dim, &stored, sizeof(stored));
}

/// Element i of such a row.
[[nodiscard]] inline float kv_row_at(const std::byte* row, std::int64_t head_dim, std::int64_t i) {
  std::uint16_t scale = 0;
  std::memcpy(&scale, row + head_dim, sizeof(scale));
  return from_bf16(scale) * static_cast<float>(static_cast<std::int8_t>(row[i]));
}

}  // namespace heddle::ops
