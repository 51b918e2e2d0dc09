#include "ops/log_probs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

TEST_F(LogProbsTest, TellsTheLikeliestOfManyWithTies) {
  for (const std::int64_t vocab : {3, 19, 900, 5000}) {
    auto logits = random(2 * vocab, 2.0F);
    for (float& logit : logits) {
      logit = std::round(logit * 4.0F) / 4.0F;
    }
    run(logits, 2, {{0, kLogProbsTopMax}, {1, 7}}, {2, 1});
    for (std::int64_t row = 0; row < 2; ++row) {
      const float* own = logits.data() + row * vocab;
      std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](auto a, auto b) {
        return own[a] != own[b] ? own[a] > own[b] : a < b;
      });
      order.resize(
          std::min(order.size(), static_cast<std::size_t>(row == 0 ? kLogProbsTopMax : 7)));
      order.insert(order.begin(), static_cast<std::int32_t>(2 - row));
      order.resize(kLogProbsWidth, -1);
      const auto first = tokens_.begin() + row * kLogProbsWidth;
      EXPECT_EQ((std::vector<std::int32_t>{first, first + kLogProbsWidth}), order) << vocab;
      double total = 0.0;
      for (std::int64_t i = 0; i < vocab; ++i) {
        total += std::exp(static_cast<double>(own[i]));
      }
      EXPECT_NEAR(static_cast<double>(values_[static_cast<std::size_t>(row * kLogProbsWidth)]),
                  static_cast<double>(own[2 - row]) - std::log(total),
                  1e-5);
    }
  }
}

TEST_F(LogProbsTest, NoRowsIsANoOp) {
  run({}, 0, {}, {});
}

}  // namespace
}  // namespace heddle::ops
