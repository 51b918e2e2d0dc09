#include "ops/silu_mul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class SiluMulTest : public OpTest {};

TEST_F(SiluMulTest, AgreesWithDouble) {
  for (const std::int64_t n : {1, 16, 19, 48}) {
    constexpr std::int64_t kTokens = 4;
    auto gate_up = random(kTokens * 2 * n, 8.0F);
    std::vector<float> out(static_cast<std::size_t>(kTokens * n));
    silu_mul(context_,
             {.gate_up = matrix_of(gate_up.data(), kTokens, 2 * n),
              .out = matrix_of(out.data(), kTokens, n)});
    synchronize();
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t i = 0; i < n; ++i) {
        const auto gate = static_cast<double>(gate_up[static_cast<std::size_t>(t * 2 * n + i)]);
        const auto up = static_cast<double>(gate_up[static_cast<std::size_t>(t * 2 * n + n + i)]);
        const double expected = gate / (1.0 + std::exp(-gate)) * up;
        EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(t * n + i)]),
                    expected,
                    8 * 0x1p-23 * std::abs(expected))
            << "gate " << gate << " up " << up;
      }
    }
  }
}

TEST_F(SiluMulTest, KeepsExtremesAndWhatIsNotANumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up{-200.0F, 200.0F, 0.0F, kNan, 1.0F, 1.0F, 1.0F, 1.0F};
  std::vector<float> out(4);
  silu_mul(context_,
           {.gate_up = matrix_of(gate_up.data(), 1, 8), .out = matrix_of(out.data(), 1, 4)});
  synchronize();
  EXPECT_NEAR(out[0], 0.0F, 1e-35F);
  EXPECT_EQ(out[1], 200.0F);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_TRUE(std::isnan(out[3]));
}

TEST_F(SiluMulTest, WithALimitAgreesWithDouble) {
  constexpr double kLimit = 7.0;
  constexpr double kGain = 1.5;
  for (const std::int64_t n : {5, 16, 37}) {
    auto gate_up = random(2 * n, 6.0F);
    gate_up[1] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> out(static_cast<std::size_t>(n));
    silu_mul(context_,
             {.gate_up = matrix_of(gate_up.data(), 1, 2 * n),
              .out = matrix_of(out.data(), 1, n),
              .limit = static_cast<float>(kLimit),
              .gain = static_cast<float>(kGain)});
    synchronize();
    EXPECT_TRUE(std::isnan(out[1]));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i == 1) {
        continue;
      }
      const double gate = std::min(static_cast<double>(gate_up[i]), kLimit);
      const double up = std::clamp(static_cast<double>(gate_up[out.size() + i]), -kLimit, kLimit);
      const double expected = gate / (1.0 + std::exp(-kGain * gate)) * (up + 1.0);
      EXPECT_NEAR(
          static_cast<double>(out[i]), expected, 1e-5 * std::abs(expected) + 1e-6 * std::abs(gate))
          << "gate " << gate << " up " << up;
    }
  }
}

TEST_F(SiluMulTest, RoundsWhatItHandsOn) {
  const auto gate_up = random(2 * 2 * 21, 3.0F);
  std::vector<float> exact(2 * 21);
  std::vector<std::uint16_t> half(2 * 21);
  silu_mul(context_,
           {.gate_up = matrix_of(gate_up.data(), 2, 42), .out = matrix_of(exact.data(), 2, 21)});
  silu_mul(context_,
           {.gate_up = matrix_of(gate_up.data(), 2, 42),
            .out = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 2, 21)});
  synchronize();
  EXPECT_EQ(half, rounded(exact));
}

}  // namespace
}  // namespace heddle::ops
