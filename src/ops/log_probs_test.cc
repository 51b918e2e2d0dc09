#include "ops/log_probs.h"

#include <cmath>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class LogProbsTest : public OpTest {
 protected:
  void run(const std::vector<float>& logits,
           std::int64_t rows,
           const std::vector<LogProbRow>& asked,
           const std::vector<std::int32_t>& choices) {
    tokens_.assign(static_cast<std::size_t>(rows * kLogProbsWidth), 99);
    values_.assign(tokens_.size(), 0.0F);
    const auto vocab = std::ssize(logits) / std::max<std::int64_t>(rows, 1);
    log_probs(context_,
              {.logits = matrix_of(logits.data(), rows, vocab),
               .rows = asked.data(),
               .choices = vector_of(choices.data(), std::ssize(choices)),
               .tokens = tokens_.data(),
               .log_probs = values_.data()});
    ASSERT_TRUE(stream_.synchronize());
  }

  std::vector<std::int32_t> tokens_{};
  std::vector<float> values_{};
};

TEST_F(LogProbsTest, TellsTheChoiceThenTheLikeliestLowestIdFirstOnTies) {
  run({0.0F, 2.0F, 1.0F, 2.0F}, 1, {{.choice = 1, .top = 3}}, {-1, 2});
  const double total = std::log(1.0 + std::exp(1.0) + 2.0 * std::exp(2.0));
  EXPECT_EQ((std::vector<std::int32_t>{tokens_.begin(), tokens_.begin() + 5}),
            (std::vector<std::int32_t>{2, 1, 3, 2, -1}));
  EXPECT_FLOAT_EQ(values_[0], static_cast<float>(1.0 - total));
  EXPECT_FLOAT_EQ(values_[1], static_cast<float>(2.0 - total));
  EXPECT_FLOAT_EQ(values_[3], values_[0]);
}

TEST_F(LogProbsTest, RowsDoNotSeeEachOtherAndSumToOne) {
  std::vector<float> logits;
  for (int i = 0; i < 15; ++i) {
    logits.push_back(static_cast<float>((i * 7) % 5) - 40.0F * static_cast<float>(i / 5));
  }
  run(logits, 3, {{0, 5}, {1, 5}, {2, 5}}, {0, 1, 2});
  for (std::size_t row = 0; row < 3; ++row) {
    double sum = 0.0;
    for (std::size_t i = 1; i <= 5; ++i) {
      sum += std::exp(static_cast<double>(values_[row * kLogProbsWidth + i]));
    }
    EXPECT_NEAR(sum, 1.0, 1e-6);
    EXPECT_EQ(tokens_[row * kLogProbsWidth], static_cast<std::int32_t>(row));
  }
}

TEST_F(LogProbsTest, ARowWithoutAChoiceIsLeftAndAskingForNoneTellsJustTheChoice) {
  run({0.0F, 1.0F, NAN, 1.0F}, 2, {{0, 0}, {1, 2}}, {1, -1});
  EXPECT_EQ(tokens_[0], 1);
  EXPECT_EQ(tokens_[1], -1);
  EXPECT_EQ(tokens_[kLogProbsWidth], -1);
}

TEST_F(LogProbsTest, NoRowsIsANoOp) {
  run({}, 0, {}, {});
}

}  // namespace
}  // namespace heddle::ops
