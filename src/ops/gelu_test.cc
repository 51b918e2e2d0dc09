#include "ops/gelu.h"

#include <limits>
#include <numbers>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class GeluTest : public OpTest {};

TEST_F(GeluTest, AgreesWithDouble) {
  for (const std::int64_t n : {1, 16, 19, 400}) {
    constexpr std::int64_t kTokens = 4;
    const auto x = random(kTokens * n, 4.0F);
    std::vector<float> out(x.size());
    gelu(context_,
         {.x = matrix_of(x.data(), kTokens, n), .out = matrix_of(out.data(), kTokens, n)});
    synchronize();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto value = static_cast<double>(x[i]);
      const double expected = value / 2 * (1 + std::erf(value / std::numbers::sqrt2));
      EXPECT_NEAR(static_cast<double>(out[i]), expected, 0x1p-21 * std::abs(value)) << value;
    }
  }
}

TEST_F(GeluTest, KeepsExtremesAndWhatIsNotANumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{-200.0F, 200.0F, 0.0F, kNan};
  std::vector<float> out(4);
  gelu(context_, {.x = matrix_of(x.data(), 1, 4), .out = matrix_of(out.data(), 1, 4)});
  synchronize();
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[1], 200.0F);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_TRUE(std::isnan(out[3]));
}

TEST_F(GeluTest, RoundsWhatItHandsOn) {
  const auto x = random(2 * 21, 3.0F);
  std::vector<float> exact(2 * 21);
  std::vector<std::uint16_t> half(2 * 21);
  gelu(context_, {.x = matrix_of(x.data(), 2, 21), .out = matrix_of(exact.data(), 2, 21)});
  gelu(context_,
       {.x = matrix_of(x.data(), 2, 21),
        .out = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 2, 21)});
  synchronize();
  EXPECT_EQ(half, rounded(exact));
}

}  // namespace
}  // namespace heddle::ops
