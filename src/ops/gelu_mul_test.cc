#include "ops/gelu_mul.h"

#include <limits>
#include <numbers>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class GeluMulTest : public OpTest {};

TEST_F(GeluMulTest, AgreesWithDouble) {
  for (const std::int64_t n : {1, 16, 19, 48}) {
    constexpr std::int64_t kTokens = 4;
    auto gate_up = random(kTokens * 2 * n, 3.0F);
    std::vector<float> out(static_cast<std::size_t>(kTokens * n));
    gelu_mul(context_,
             {.gate_up = matrix_of(gate_up.data(), kTokens, 2 * n),
              .out = matrix_of(out.data(), kTokens, n)});
    synchronize();
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t i = 0; i < n; ++i) {
        const auto g = static_cast<double>(gate_up[static_cast<std::size_t>(t * 2 * n + i)]);
        const auto up = static_cast<double>(gate_up[static_cast<std::size_t>(t * 2 * n + n + i)]);
        const double inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
        const double expected = g / 2 * (1 + std::tanh(inner)) * up;
        EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(t * n + i)]),
                    expected,
                    0x1p-22 * std::abs(g * up))
            << "gate " << g << " up " << up;
      }
    }
  }
}

TEST_F(GeluMulTest, KeepsExtremesAndWhatIsNotANumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up{-200.0F, 200.0F, 0.0F, kNan, 1.0F, 1.0F, 1.0F, 1.0F};
  std::vector<float> out(4);
  gelu_mul(context_,
           {.gate_up = matrix_of(gate_up.data(), 1, 8), .out = matrix_of(out.data(), 1, 4)});
  synchronize();
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[1], 200.0F);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_TRUE(std::isnan(out[3]));
}

TEST_F(GeluMulTest, RoundsWhatItHandsOn) {
  const auto gate_up = random(2 * 2 * 21, 3.0F);
  std::vector<float> exact(2 * 21);
  std::vector<std::uint16_t> half(2 * 21);
  gelu_mul(context_,
           {.gate_up = matrix_of(gate_up.data(), 2, 42), .out = matrix_of(exact.data(), 2, 21)});
  gelu_mul(context_,
           {.gate_up = matrix_of(gate_up.data(), 2, 42),
            .out = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 2, 21)});
  synchronize();
  EXPECT_EQ(half, rounded(exact));
}

TEST_F(GeluMulTest, TakesGatesInBfloat16WhereABackendHasThem) {
  if (context_.kernels.narrow_from == 0) {
    GTEST_SKIP() << "this backend hands on floats";
  }
  for (const std::int64_t n : {19, 48}) {
    const auto gate_up = rounded(random(3 * 2 * n, 3.0F));
    const auto wide = widened(gate_up);
    std::vector<std::uint16_t> of_wide(static_cast<std::size_t>(3 * n));
    std::vector<std::uint16_t> of_half(of_wide.size());
    const auto half = [&](std::vector<std::uint16_t>& out) {
      return tensor_2d(reinterpret_cast<std::byte*>(out.data()), DType::kBf16, 3, n);
    };
    gelu_mul(context_, {.gate_up = matrix_of(wide.data(), 3, 2 * n), .out = half(of_wide)});
    gelu_mul(context_, {.gate_up = bf16_matrix(gate_up, 3, 2 * n), .out = half(of_half)});
    synchronize();
    EXPECT_EQ(of_half, of_wide);
  }
}

}  // namespace
}  // namespace heddle::ops
