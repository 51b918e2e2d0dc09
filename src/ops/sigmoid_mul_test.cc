#include "ops/sigmoid_mul.h"

#include <limits>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class SigmoidMulTest : public OpTest {};

TEST_F(SigmoidMulTest, AgreesWithDouble) {
  for (const std::int64_t n : {1, 16, 19, 48}) {
    constexpr std::int64_t kTokens = 3;
    const auto gate = random(kTokens * n, 8.0F);
    const auto before = random(kTokens * n, 2.0F);
    auto rows = before;
    sigmoid_mul(
        context_,
        {.gate = matrix_of(gate.data(), kTokens, n), .rows = matrix_of(rows.data(), kTokens, n)});
    synchronize();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double expected =
          static_cast<double>(before[i]) / (1.0 + std::exp(-static_cast<double>(gate[i])));
      EXPECT_NEAR(static_cast<double>(rows[i]), expected, 8 * 0x1p-23 * std::abs(expected));
    }
  }
}

TEST_F(SigmoidMulTest, KeepsExtremesAndWhatIsNotANumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate{-200.0F, 200.0F, kNan, 0.0F};
  std::vector<float> rows{2.0F, 2.0F, 2.0F, 2.0F};
  sigmoid_mul(context_,
              {.gate = matrix_of(gate.data(), 1, 4), .rows = matrix_of(rows.data(), 1, 4)});
  synchronize();
  EXPECT_NEAR(rows[0], 0.0F, 1e-35F);
  EXPECT_EQ(rows[1], 2.0F);
  EXPECT_TRUE(std::isnan(rows[2]));
  EXPECT_EQ(rows[3], 1.0F);
}

TEST_F(SigmoidMulTest, RoundsOnce) {
  const auto gate = random(2 * 21, 3.0F);
  auto half = rounded(random(2 * 21));
  auto exact = widened(half);
  sigmoid_mul(context_,
              {.gate = matrix_of(gate.data(), 2, 21), .rows = matrix_of(exact.data(), 2, 21)});
  sigmoid_mul(context_,
              {.gate = matrix_of(gate.data(), 2, 21),
               .rows = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 2, 21)});
  synchronize();
  EXPECT_EQ(half, rounded(exact));
}

TEST_F(SigmoidMulTest, TakesGatesInBfloat16WhereABackendHasThem) {
  if (context_.kernels.narrow_from == 0) {
    GTEST_SKIP() << "this backend hands on floats";
  }
  for (const std::int64_t n : {21, 48}) {
    const auto gate = rounded(random(2 * n, 3.0F));
    const auto wide = widened(gate);
    const auto before = rounded(random(2 * n));
    auto by_floats = before;
    auto by_half = before;
    const auto rows = [&](std::vector<std::uint16_t>& numbers) {
      return tensor_2d(reinterpret_cast<std::byte*>(numbers.data()), DType::kBf16, 2, n);
    };
    sigmoid_mul(context_, {.gate = matrix_of(wide.data(), 2, n), .rows = rows(by_floats)});
    sigmoid_mul(context_, {.gate = bf16_matrix(gate, 2, n), .rows = rows(by_half)});
    synchronize();
    EXPECT_EQ(by_half, by_floats);
  }
}

}  // namespace
}  // namespace heddle::ops
