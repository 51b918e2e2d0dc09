#include "ops/sample.h"

#include <algorithm>
#include <limits>

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class SampleTest : public OpTest {
 protected:
  std::int32_t draw(const std::vector<float>& logits, const SampleRow& row) {
    const std::vector<SampleRow> rows{row};
    std::vector<std::int32_t> token{12345};
    sample(context_,
           {.logits = matrix_of(logits.data(), 1, static_cast<std::int64_t>(logits.size())),
            .rows = rows.data(),
            .tokens = vector_of(token.data(), 1)});
    EXPECT_TRUE(stream_.synchronize());
    return token[0];
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

/// The draw as sample.h states it, by sorting all.
std::int32_t drawn_by_sorting(const std::vector<float>& logits,
                              const SampleRow& row,
                              const std::vector<std::uint32_t>& mask) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (((mask[i / 32] >> (i % 32)) & 1U) != 0) {
      order.push_back(i);
    }
  }
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (order.empty() || !std::isfinite(logits[order[0]])) {
    return kNoToken;
  }
  const auto weight = [&](std::size_t i) {
    const auto gap = static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]]);
    return std::exp(gap / static_cast<double>(row.temperature));
  };
  const auto total = [&] {
    double sum = 0.0;
    for (const std::size_t i : order) {
      sum += weight(i);
    }
    return sum;
  };
  if (row.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<std::size_t>(row.top_k)));
  }
  const double goal = static_cast<double>(row.top_p) * total();
  double reached = 0.0;
  std::size_t kept = 0;
  while (kept < order.size() && (kept == 0 || row.top_p >= 1.0F || reached < goal)) {
    reached += weight(order[kept]);
    ++kept;
  }
  order.resize(kept);
  std::erase_if(order, [&](auto i) { return weight(i) < static_cast<double>(row.min_p); });
  std::sort(order.begin(), order.end());
  const double draw = row.uniform * total();
  reached = 0.0;
  for (const std::size_t i : order) {
    reached += weight(i);
    if (reached > draw) {
      return static_cast<std::int32_t>(i);
    }
  }
  return static_cast<std::int32_t>(order.back());
}

// Rows of a batch that ask for different things, with ties, impossible tokens and masks.
TEST_F(SampleTest, EveryRowDrawsAsIfAllWereSorted) {
  for (const std::int64_t vocab : {1, 5, 40, 700, 5000}) {
    constexpr std::int64_t kRows = 24;
    auto logits = random(kRows * vocab, 3.0F);
    const std::int64_t words = mask_words(vocab);
    std::vector<std::uint32_t> masks(static_cast<std::size_t>(kRows * words), 0xffffffffU);
    std::vector<SampleRow> rows;
    for (std::int64_t r = 0; r < kRows; ++r) {
      SampleRow& row = rows.emplace_back();
      row.temperature = r % 5 == 0 ? 1.0F : 0.6F;
      row.top_k = r % 2 == 0 ? 0 : static_cast<std::int32_t>(1 + rng_.below(50));
      row.top_p = r % 3 == 0 ? 1.0F : 0.8F;
      row.min_p = r % 4 == 0 ? 0.02F : 0.0F;
      row.uniform = static_cast<double>(rng_.below(1U << 20U)) * 0x1p-20;
      row.mask = r % 3 == 1 ? static_cast<std::int32_t>(r) : -1;
      for (std::int64_t w = 0; w < words && row.mask >= 0; ++w) {
        masks[static_cast<std::size_t>(r * words + w)] =
            static_cast<std::uint32_t>(rng_.below(std::uint64_t{1} << 32U));
      }
      for (std::int64_t i = 0; i < vocab; ++i) {
        float& logit = logits[static_cast<std::size_t>(r * vocab + i)];
        logit = r % 2 == 1 ? std::round(logit * 2.0F) / 2.0F : logit;
        logit = r % 7 == 3 && rng_.below(3) == 0 ? -std::numeric_limits<float>::infinity() : logit;
      }
    }
    std::vector<std::int32_t> tokens(kRows, 12345);
    sample(context_,
           {.logits = matrix_of(logits.data(), kRows, vocab),
            .rows = rows.data(),
            .masks = masks.data(),
            .tokens = vector_of(tokens.data(), kRows)});
    ASSERT_TRUE(stream_.synchronize());
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto first = logits.begin() + r * vocab;
      const auto mask = masks.begin() + r * words;
      EXPECT_EQ(
          tokens[static_cast<std::size_t>(r)],
          drawn_by_sorting(
              {first, first + vocab}, rows[static_cast<std::size_t>(r)], {mask, mask + words}))
          << "row " << r << " of " << vocab;
    }
  }
}

// More tokens than a GPU measures one against the other, in one bin of its histogram.
TEST_F(SampleTest, ManyTokensOfAboutTheSameLogitAreCutByLogitAndId) {
  for (const float spread : {0.0F, 0.002F, 0.01F}) {
    std::vector<float> logits(3000);
    for (float& logit : logits) {
      logit = 1.0F - spread * static_cast<float>(rng_.below(3));
    }
    const std::vector<std::uint32_t> all(static_cast<std::size_t>(mask_words(3000)), 0xffffffffU);
    for (const SampleRow& row : {SampleRow{.top_k = 700, .uniform = 0.9999},
                                 SampleRow{.top_k = 1, .uniform = 0.5},
                                 SampleRow{.top_p = 0.45F, .uniform = 0.9999},
                                 SampleRow{.top_p = 0.7F, .top_k = 2500, .uniform = 0.3}}) {
      EXPECT_EQ(draw(logits, row), drawn_by_sorting(logits, row, all)) << spread;
    }
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
