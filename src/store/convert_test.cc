#include "store/convert.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::store {
namespace {

using spec::DType;

/// Converts one value through vectors, whose loop is what loads run through.
template <class To, class From>
std::vector<To> converted(StoredType from, DType to, const std::vector<From>& values) {
  std::vector<To> out(values.size());
  convert(from,
          reinterpret_cast<const std::byte*>(values.data()),
          to,
          reinterpret_cast<std::byte*>(out.data()),
          values.size());
  return out;
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    halves.push_back(static_cast<std::uint16_t>(bits));
  }
  return halves;
}

/// By the definition of IEEE 754 binary16.
double value_of_f16(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

void expect_same(double expected, float actual, std::uint32_t bits) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << bits;
  } else {
    EXPECT_EQ(static_cast<double>(actual), expected) << bits;
    EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
  }
}

TEST(Convert, EveryF16IsExactAsF32) {
  const auto halves = all_halves();
  const auto floats = converted<float>(StoredType::kF16, DType::kF32, halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    expect_same(value_of_f16(halves[i]), floats[i], halves[i]);
  }
}

TEST(Convert, EveryBf16IsExactAsF32AndComesBack) {
  const auto halves = all_halves();
  const auto floats = converted<float>(StoredType::kBf16, DType::kF32, halves);
  const auto back = converted<std::uint16_t>(StoredType::kF32, DType::kBf16, floats);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::uint32_t{halves[i]} << 16U);
    const bool nan = (halves[i] & 0x7FFFU) > 0x7F80U;
    EXPECT_EQ(back[i], nan ? halves[i] | 0x40U : halves[i]);
  }
}

/// The bf16 nearest to `value`, found by comparing both neighbours; ties to the even one.
std::uint16_t nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto down = static_cast<std::uint16_t>(bits >> 16U);  // Towards zero.
  const auto up = static_cast<std::uint16_t>(down + 1);
  // In double, with what lies behind the largest bf16 taken as 2^128 rather than infinity.
  const auto as_double = [](std::uint16_t half) {
    const double magnitude = (half & 0x7FFFU) == 0x7F80U
                                 ? 0x1p128
                                 : double{std::bit_cast<float>((half & 0x7FFFU) << 16U)};
    return magnitude;
  };
  const double exact = std::fabs(double{value});
  const double below = exact - as_double(down);
  const double above = as_double(up) - exact;
  if (below == above) {
    return down % 2 == 0 ? down : up;
  }
  return below < above ? down : up;
}

TEST(Convert, F32RoundsToTheNearestBf16) {
  std::vector<float> floats = {0.0F,
                               -0.0F,
                               1.0F,
                               0x1.01p0F,
                               0x1.03p0F,
                               0x1.010002p0F,
                               0x1p-149F,
                               -0x1.fep-127F,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest()};
  Rng rng(11);
  for (int i = 0; i < 200000; ++i) {
    auto bits = static_cast<std::uint32_t>(rng.next());
    if (i % 4 == 0) {
      bits = (bits & 0xFFFF0000U) | 0x8000U;  // A tie.
    }
    const float value = std::bit_cast<float>(bits);
    if (std::isfinite(value)) {
      floats.push_back(value);
    }
  }
  const auto halves = converted<std::uint16_t>(StoredType::kF32, DType::kBf16, floats);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    EXPECT_EQ(halves[i], nearest_bf16(floats[i])) << "seed 11: " << floats[i];
  }
}

TEST(Convert, InfinitiesAndNansStayWhatTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float barely_nan = std::bit_cast<float>(0x7F800001U);
  const float wide_nan = std::bit_cast<float>(0xFFFFFFFFU);
  const auto halves =
      converted<std::uint16_t>(StoredType::kF32,
                               DType::kBf16,
                               std::vector<float>{infinity, -infinity, barely_nan, wide_nan});
  EXPECT_EQ(halves[0], 0x7F80);
  EXPECT_EQ(halves[1], 0xFF80);
  EXPECT_GT(halves[2] & 0x7FFF, 0x7F80);
  EXPECT_GT(halves[3] & 0x7FFF, 0x7F80);
}

TEST(Convert, F16ToBf16IsAsByWayOfF32) {
  const auto halves = all_halves();
  const auto direct = converted<std::uint16_t>(StoredType::kF16, DType::kBf16, halves);
  const auto floats = converted<float>(StoredType::kF16, DType::kF32, halves);
  EXPECT_EQ(direct, converted<std::uint16_t>(StoredType::kF32, DType::kBf16, floats));
}

TEST(Convert, SameTypesAreCopied) {
  EXPECT_TRUE(same_bytes(StoredType::kBf16, DType::kBf16));
  EXPECT_TRUE(same_bytes(StoredType::kF32, DType::kF32));
  EXPECT_FALSE(same_bytes(StoredType::kF16, DType::kBf16));
  const std::vector<std::uint32_t> values = {0x7F800001U, 1U, 0xFFFFFFFFU};
  EXPECT_EQ(converted<std::uint32_t>(StoredType::kF32, DType::kF32, values), values);
  EXPECT_FALSE(can_convert(StoredType::kI64, DType::kF32));
  EXPECT_FALSE(can_convert(StoredType::kF32, DType::kF16));
}

TEST(Convert, UnalignedBytesWork) {
  std::vector<std::byte> source(1 + 3 * 4);
  const std::vector<float> values = {1.0F, 2.0F, -3.0F};
  std::memcpy(source.data() + 1, values.data(), 12);
  std::vector<std::byte> target(1 + 3 * 2);
  convert(StoredType::kF32, source.data() + 1, DType::kBf16, target.data() + 1, 3);
  std::vector<std::uint16_t> halves(3);
  std::memcpy(halves.data(), target.data() + 1, 6);
  EXPECT_EQ(halves, (std::vector<std::uint16_t>{0x3F80, 0x4000, 0xC040}));
}

}  // namespace
}  // namespace heddle::store
