#include "ops/rescale.h"

#include <limits>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class RescaleTest : public OpTest {
 protected:
  std::vector<float> run(const std::vector<float>& x, float factor, float cap) {
    std::vector<float> out(x.size());
    const auto n = static_cast<std::int64_t>(x.size());
    rescale(context_,
            {.x = matrix_of(x.data(), 1, n),
             .factor = factor,
             .cap = cap,
             .out = matrix_of(out.data(), 1, n)});
    synchronize();
    return out;
  }
};

TEST_F(RescaleTest, MultipliesWhereThereIsNoCap) {
  const std::vector<float> x = random(37);
  const std::vector<float> out = run(x, 1.5F, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(out[i], x[i] * 1.5F);
  }
}

TEST_F(RescaleTest, MultipliesWithANumberOfTheModelToo) {
  if (backend_->kind() != device::Kind::kCpu) {
    GTEST_SKIP() << "a number of the model's is for CPUs";
  }
  std::vector<float> x = random(37);
  const std::vector<float> before = x;
  const float by = 0.75F;
  const auto rows = matrix_of(x.data(), 1, 37);
  rescale(context_, {.x = rows, .factor = 2.0F, .by = vector_of(&by, 1), .out = rows});
  synchronize();
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i], before[i] * 1.5F);
  }
}

TEST_F(RescaleTest, KeepsWithinItsCap) {
  for (const float cap : {0.5F, 30.0F, 50.0F}) {
    const std::vector<float> x = random(200, 40.0F);
    const std::vector<float> out = run(x, 0.75F, cap);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double c = cap;
      const double expected = c * std::tanh(0.75 * static_cast<double>(x[i]) / c);
      EXPECT_NEAR(out[i], expected, c * 0x1p-21) << x[i] << " cap " << cap;
    }
  }
}

TEST_F(RescaleTest, OfLargeNumbersIsTheCapAndOfNoneNone) {
  const std::vector<float> out =
      run({1e30F, -1e30F, 0.0F, std::numeric_limits<float>::quiet_NaN()}, 1.0F, 30.0F);
  EXPECT_EQ(out[0], 30.0F);
  EXPECT_EQ(out[1], -30.0F);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_TRUE(std::isnan(out[3]));
}

TEST_F(RescaleTest, RoundsWhatItHandsOn) {
  const std::vector<float> x = random(2 * 21, 3.0F);
  std::vector<std::uint16_t> half(2 * 21);
  rescale(context_,
          {.x = matrix_of(x.data(), 2, 21),
           .out = tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, 2, 21)});
  synchronize();
  EXPECT_EQ(half, rounded(x));
}

}  // namespace
}  // namespace heddle::ops
