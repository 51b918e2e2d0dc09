#include "ops/add_norm.h"

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kAddedTokens = 3;
constexpr std::int64_t kColumns = 37;

class AddNormTest : public OpTest {
 protected:
  /// sum plus the factor times `added`, in double.
  void expect_added(const std::vector<double>& added, float factor, const std::vector<float>& out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double wanted = static_cast<double>(sum_[i]) + static_cast<double>(factor) * added[i];
      EXPECT_NEAR(out[i], wanted, 2e-6 * (1 + std::abs(added[i]))) << i;
    }
  }

  std::vector<float> run(const ConstTensorRef& weight, float factor) {
    std::vector<float> x = x_;
    std::vector<float> sum = sum_;
    add_norm(context_,
             {.x = matrix_of(x.data(), kAddedTokens, kColumns),
              .weight = weight,
              .eps = 1e-3F,
              .factor = factor,
              .sum = matrix_of(sum.data(), kAddedTokens, kColumns)});
    synchronize();
    return sum;
  }

  std::vector<float> x_ = random(kAddedTokens * kColumns, 2.0F);
  std::vector<float> sum_ = random(kAddedTokens * kColumns);
  std::vector<float> weight_ = random(kColumns);
};

TEST_F(AddNormTest, AddsTheNormTimesTheFactor) {
  std::vector<double> normed;
  for (std::size_t row = 0; row < kAddedTokens; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < kColumns; ++i) {
      const auto x = static_cast<double>(x_[row * kColumns + i]);
      squares += x * x;
    }
    for (std::size_t i = 0; i < kColumns; ++i) {
      normed.push_back(static_cast<double>(x_[row * kColumns + i]) /
                       std::sqrt(squares / kColumns + 1e-3) * static_cast<double>(weight_[i]));
    }
  }
  expect_added(normed, 0.5F, run(vector_of(weight_.data(), kColumns), 0.5F));
}

TEST_F(AddNormTest, WithoutAWeightAddsWhatThereIs) {
  expect_added({x_.begin(), x_.end()}, 0.25F, run({}, 0.25F));
}

}  // namespace
}  // namespace heddle::ops
