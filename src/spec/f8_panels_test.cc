#include "spec/f8_panels.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "spec/block_panels.h"

namespace heddle::spec {
namespace {

TEST(E4m3, HasTheValuesOfItsFields) {
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    const float found = f32_of_e4m3(static_cast<std::uint8_t>(bits));
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    const double magnitude =
        exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(static_cast<double>(found), bits < 128 ? magnitude : -magnitude) << bits;
    EXPECT_EQ(std::signbit(found), bits >= 128) << bits;
  }
}

TEST(F8Panels, GiveBackTheirRows) {
  constexpr std::int64_t kColumns = 384;
  constexpr std::size_t kCount = 11;  // Of sixteen.
  Rng rng(7);
  const auto row_size = static_cast<std::size_t>(row_bytes(DType::kF8, kColumns));
  ASSERT_EQ(row_size, 3U * 132U);
  std::vector<std::vector<std::byte>> rows(kCount, std::vector<std::byte>(row_size));
  std::vector<const std::byte*> places;
  std::vector<std::vector<float>> wanted(kCount);
  for (std::size_t r = 0; r < kCount; ++r) {
    for (std::size_t block = 0; block < 3; ++block) {
      std::byte* const at = rows[r].data() + block * 132;
      const float scale = static_cast<float>(1 + rng.below(1000)) * 0.001F;
      std::memcpy(at, &scale, sizeof(scale));
      for (std::size_t i = 0; i < 128; ++i) {
        const auto code = static_cast<std::uint8_t>(rng.below(127) | rng.below(2) << 7U);
        at[4 + i] = static_cast<std::byte>(code);
        wanted[r].push_back(scale * f32_of_e4m3(code));
      }
    }
    places.push_back(rows[r].data());
  }
  std::vector<std::byte> panel(matrix_bytes(DType::kF8, kCount, kColumns));
  ASSERT_EQ(panel.size(), 16 * row_size) << "whole panels";
  interleave_rows(DType::kF8, places, kColumns, panel.data());
  std::vector<float> found(kColumns);
  for (std::size_t r = 0; r < 16; ++r) {
    read_panel_row(DType::kF8, panel.data(), static_cast<std::int64_t>(r), kColumns, found.data());
    EXPECT_EQ(found, r < kCount ? wanted[r] : std::vector<float>(kColumns, 0.0F)) << r;
  }
  // Byte 64 g + 4 r + i of quants behind sixteen scales.
  EXPECT_EQ(panel[64 + 64 * 3 + 4 * 5 + 2], rows[5][4 + 14]);
}

}  // namespace
}  // namespace heddle::spec
