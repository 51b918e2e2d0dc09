#include "ops/sample.h"

#include <limits>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class SampleTest : public OpTest {
 protected:
  std::int32_t draw(const std::vector<float>& logits, const SampleRow& row) {
    std::int32_t token = 12345;
    sample(context_,
           {.logits = matrix_of(logits.data(), 1, static_cast<std::int64_t>(logits.size())),
            .rows = &row,
            .tokens = vector_of(&token, 1)});
    EXPECT_TRUE(stream_.synchronize());
    return token;
  }

  /// Share of each token over evenly spread random numbers.
  std::vector<double> shares(const std::vector<float>& logits, SampleRow row) {
    constexpr int kDraws = 1000;
    std::vector<double> result(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      row.uniform = (i + 0.5) / kDraws;
      result[static_cast<std::size_t>(draw(logits, row))] += 1.0 / kDraws;
    }
    return result;
  }
};

/// Logits of tokens with those probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  return logits;
}

void expect_shares(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 0.0011) << "token " << i;
  }
}

TEST_F(SampleTest, GreedyTakesTheLargestAndTheLowestIdOnTies) {
  EXPECT_EQ(draw({1, 5, 2, 5}, {.temperature = 0.0F, .uniform = 0.99}), 1);
}

TEST_F(SampleTest, FollowsTheProbabilities) {
  expect_shares(shares(logits_of({0.1, 0.6, 0.3}), {}), {0.1, 0.6, 0.3});
}

TEST_F(SampleTest, TemperatureSharpensAndFlattens) {
  expect_shares(shares(logits_of({0.2, 0.8}), {.temperature = 0.5F}), {0.04 / 0.68, 0.64 / 0.68});
}

TEST_F(SampleTest, TopKKeepsTheLikeliestAndLowestIdsOnTies) {
  expect_shares(shares(logits_of({0.2, 0.2, 0.4, 0.2}), {.top_k = 2}), {1.0 / 3, 0, 2.0 / 3, 0});
  expect_shares(shares(logits_of({0.2, 0.8}), {.top_k = 9}), {0.2, 0.8});
}

TEST_F(SampleTest, TopPKeepsTheFewestThatReachIt) {
  const auto logits = logits_of({0.1, 0.5, 0.15, 0.25});
  expect_shares(shares(logits, {.top_p = 0.49F}), {0, 1, 0, 0});
  expect_shares(shares(logits, {.top_p = 0.7F}), {0, 2.0 / 3, 0, 1.0 / 3});
  expect_shares(shares(logits, {.top_p = 0.0F}), {0, 1, 0, 0});
}

TEST_F(SampleTest, TopPCountsWithinTopK) {
  // Of {0.5, 0.25}, renormalised, the first alone is 2/3 and reaches 0.6; of all four it does not.
  expect_shares(shares(logits_of({0.1, 0.5, 0.15, 0.25}), {.top_p = 0.6F, .top_k = 2}),
                {0, 1, 0, 0});
}

TEST_F(SampleTest, MinPIsRelativeToTheLikeliest) {
  expect_shares(shares(logits_of({0.1, 0.5, 0.15, 0.25}), {.min_p = 0.4F}),
                {0, 2.0 / 3, 0, 1.0 / 3});
}

TEST_F(SampleTest, TopPOverManyTokensEqualsSortingThemAll) {
  const auto logits = random(3000, 2.0F);
  std::vector<std::size_t> order(logits.size());
  double total = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    total += std::exp(static_cast<double>(logits[i]));
  }
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  double reached = 0.0;
  std::vector<bool> kept(logits.size());
  for (std::size_t i = 0; reached < 0.8 * total; ++i) {
    kept[order[i]] = true;
    reached += std::exp(static_cast<double>(logits[order[i]]));
  }
  for (int i = 0; i < 500; ++i) {
    const auto token = draw(logits, {.top_p = 0.8F, .uniform = (i + 0.5) / 500});
    EXPECT_TRUE(kept[static_cast<std::size_t>(token)]) << token;
  }
}

TEST_F(SampleTest, SaysSoWhereLogitsAreNotNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float temperature : {0.0F, 1.0F}) {
    EXPECT_EQ(draw({1, 2, kNan}, {.temperature = temperature}), kNoToken);
    EXPECT_EQ(draw({kNan, 2, 1}, {.temperature = temperature}), kNoToken);
    EXPECT_EQ(draw({1, kInf, 2}, {.temperature = temperature}), kNoToken);
    EXPECT_EQ(draw({-kInf, -kInf}, {.temperature = temperature}), kNoToken);
    EXPECT_EQ(draw({-kInf, 3, -kInf}, {.temperature = temperature, .uniform = 0.9}), 1);
  }
}

}  // namespace
}  // namespace heddle::ops
