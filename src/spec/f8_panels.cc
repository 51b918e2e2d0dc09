#include "spec/f8_panels.h"

#include <bit>
#include <cstring>
#include <limits>

#include "spec/block_panels.h"

namespace heddle::spec {
namespace {

constexpr std::size_t kScaleBytes = sizeof(float);
/// Of a panel's block: all scales, and the bytes of four inputs of each row.
constexpr std::size_t kHeadBytes = kPanelRows * kScaleBytes;
constexpr std::size_t kFourBytes = std::size_t{4} * kPanelRows;
constexpr std::size_t kFours = kF8Inputs / 4;

}  // namespace

float f32_of_e4m3(std::uint8_t bits) {
  const std::uint32_t magnitude = bits & 0x7FU;
  if (magnitude == 0x7FU) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  // Exponent and mantissa move into place; the exponent's bias is 127 there and 7 here.
  const float value = std::bit_cast<float>(magnitude << 20U) * 0x1p120F;
  return (bits & 0x80U) != 0 ? -value : value;
}

void interleave_f8_rows(std::span<const std::byte* const> rows,
                        std::int64_t columns,
                        std::byte* panel) {
  std::memset(panel, 0, static_cast<std::size_t>(kPanelRows * columns / kF8Inputs * kF8Bytes));
  for (std::int64_t block = 0; block < columns / kF8Inputs; ++block) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::byte* const from = rows[row] + block * kF8Bytes;
      std::memcpy(panel + kScaleBytes * row, from, kScaleBytes);
      std::byte* const quants = panel + kHeadBytes + 4 * row;
      for (std::size_t four = 0; four < kFours; ++four) {
        std::memcpy(quants + four * kFourBytes, from + kScaleBytes + 4 * four, 4);
      }
    }
    panel += kPanelRows * kF8Bytes;
  }
}

void read_f8_row(const std::byte* panel, std::int64_t row, std::int64_t columns, float* numbers) {
  const auto at = static_cast<std::size_t>(row);
  for (std::int64_t done = 0; done < columns; done += kF8Inputs) {
    float scale = 0.0F;
    std::memcpy(&scale, panel + kScaleBytes * at, kScaleBytes);
    const auto* const quants = reinterpret_cast<const std::uint8_t*>(panel) + kHeadBytes + 4 * at;
    for (std::size_t i = 0; i < static_cast<std::size_t>(kF8Inputs); ++i) {
      *numbers++ = scale * f32_of_e4m3(quants[i / 4 * kFourBytes + i % 4]);
    }
    panel += kPanelRows * kF8Bytes;
  }
}

}  // namespace heddle::spec
