#include "store/quantise.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace heddle::store {
namespace {

constexpr float kSmallest = 1e-30F;
constexpr float kMost = 127.0F;
constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer below.

/// Largest |value| as bits, which order as the values do; those of what is not finite are largest.
std::uint32_t largest_magnitude(std::span<const float> row) {
  std::uint32_t largest = 0;
  for (const float value : row) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  }
  return largest;
}

}  // namespace

float quantise_row(std::span<const float> row, std::span<std::int8_t> target) {
  HEDDLE_CHECK(target.size() == row.size());
  const std::uint32_t bits = largest_magnitude(row);
  const bool finite = bits < 0x7F800000U;
  const float largest = std::bit_cast<float>(bits);
  if (!finite || largest <= kSmallest) {
    std::fill(target.begin(), target.end(), std::int8_t{0});
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  const float steps = kMost / largest;
  for (std::size_t i = 0; i < row.size(); ++i) {
    target[i] = static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(row[i] * steps + kRound));
  }
  return largest / kMost;
}

}  // namespace heddle::store
