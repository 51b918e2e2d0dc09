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

// In rows that are moved one by one and four at a time, of a warp and of a block.
TEST_F(AddNormTest, HandsOnTheNormOfTheSum) {
  for (const std::int64_t columns : {37, 64, 1024}) {
    constexpr float kEps = 1e-3F;
    std::vector<float> x = random(kAddedTokens * columns, 2.0F);
    std::vector<float> sum = random(kAddedTokens * columns);
    const std::vector<float> weight = random(columns);
    const std::vector<float> next_weight = random(columns);
    std::vector<float> next(x.size());
    std::vector<std::uint16_t> half(x.size());
    std::vector<float> again = sum;
    std::vector<float> x_again = x;
    const AddNormArgs args{.x = matrix_of(x.data(), kAddedTokens, columns),
                           .weight = vector_of(weight.data(), columns),
                           .eps = kEps,
                           .factor = 0.5F,
                           .sum = matrix_of(sum.data(), kAddedTokens, columns),
                           .next_weight = vector_of(next_weight.data(), columns),
                           .next = matrix_of(next.data(), kAddedTokens, columns)};
    add_norm(context_, args);
    AddNormArgs to_half = args;
    to_half.x = matrix_of(x_again.data(), kAddedTokens, columns);
    to_half.sum = matrix_of(again.data(), kAddedTokens, columns);
    to_half.next =
        tensor_2d(reinterpret_cast<std::byte*>(half.data()), DType::kBf16, kAddedTokens, columns);
    add_norm(context_, to_half);
    synchronize();
    EXPECT_TRUE(same_bits(sum, again));
    EXPECT_EQ(half, rounded(next));
    for (std::int64_t row = 0; row < kAddedTokens; ++row) {
      const float* const own = sum.data() + row * columns;
      double squares = 0;
      for (std::int64_t i = 0; i < columns; ++i) {
        squares += static_cast<double>(own[i]) * static_cast<double>(own[i]);
      }
      const double length =
          std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(kEps));
      for (std::int64_t i = 0; i < columns; ++i) {
        const double wanted = static_cast<double>(own[i]) / length *
                              static_cast<double>(next_weight[static_cast<std::size_t>(i)]);
        ASSERT_NEAR(next[static_cast<std::size_t>(row * columns + i)],
                    wanted,
                    4e-6 * (0.1 + std::abs(wanted)))
            << columns << " columns, " << i;
      }
    }
  }
}

TEST_F(AddNormTest, HandsOnTheSumWhereItHasNoWeight) {
  std::vector<float> x = x_;
  std::vector<float> sum = sum_;
  std::vector<std::uint16_t> next(x.size());
  add_norm(context_,
           {.x = matrix_of(x.data(), kAddedTokens, kColumns),
            .weight = vector_of(weight_.data(), kColumns),
            .sum = matrix_of(sum.data(), kAddedTokens, kColumns),
            .next = tensor_2d(
                reinterpret_cast<std::byte*>(next.data()), DType::kBf16, kAddedTokens, kColumns)});
  synchronize();
  EXPECT_EQ(next, rounded(sum));
}

}  // namespace
}  // namespace heddle::ops
