#include "sim/quantiles.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

TEST(Quantiles, AreTheNumbersThemselvesWhileTheseAreFew) {
  Quantiles quantiles;
  for (int i = 100; i >= 1; --i) {
    quantiles.add(i);
  }
  EXPECT_EQ(quantiles.at(0.50), 50);
  EXPECT_EQ(quantiles.at(0.95), 95);
  EXPECT_EQ(quantiles.at(0.99), 99);
  EXPECT_EQ(quantiles.at(0), 1);
  EXPECT_EQ(quantiles.at(1), 100);
  EXPECT_DOUBLE_EQ(quantiles.distribution().mean, 50.5);
  quantiles.add(0.5);
  EXPECT_EQ(quantiles.at(0), 0.5) << "sorted again after an addition";
  EXPECT_EQ(quantiles.curve(3), (std::vector<float>{0.5F, 50, 100}));
}

TEST(Quantiles, AreNeverAboveTheGreatest) {
  Quantiles quantiles;
  const double greatest = 0.020037196;  // The nearest float is above it.
  ASSERT_GT(static_cast<double>(static_cast<float>(greatest)), greatest);
  quantiles.add(greatest);
  EXPECT_LE(quantiles.at(0.99), quantiles.distribution().most);
}

TEST(Quantiles, TwoTogetherAreAsIfAllHadBeenAddedToOne) {
  constexpr std::size_t kFew = 1000;
  constexpr std::size_t kMany = Quantiles::kExact + 1;
  for (const std::size_t first : {std::size_t{0}, kFew, kMany}) {
    for (const std::size_t second : {std::size_t{0}, kFew, kMany}) {
      Quantiles all;
      Quantiles one;
      Quantiles other;
      for (std::size_t i = 0; i < first + second; ++i) {
        const auto value = static_cast<double>(i * 7919 % 10007);
        all.add(value);
        (i < first ? one : other).add(value);
      }
      one.add(other);
      EXPECT_EQ(one.count(), all.count());
      for (const double part : {0.0, 0.5, 0.99, 1.0}) {
        EXPECT_EQ(one.at(part), all.at(part)) << first << " and " << second << " at " << part;
      }
      EXPECT_DOUBLE_EQ(one.distribution().mean, all.distribution().mean);
    }
  }
}

TEST(Quantiles, OfNothingAreZero) {
  EXPECT_EQ(Quantiles().at(0.5), 0);
  EXPECT_EQ(Quantiles().distribution().count, 0U);
  EXPECT_TRUE(Quantiles().curve(10).empty());
}

TEST(Quantiles, AreWithinHalfAPercentWhenNumbersAreMany) {
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Rng rng(kSeed);
  Quantiles quantiles;
  std::vector<double> all;
  for (std::size_t i = 0; i < Quantiles::kExact + 5000; ++i) {
    // Over six decades, and zeros.
    const double value =
        i % 100 == 0 ? 0 : std::pow(10, 6 * (static_cast<double>(rng.next() >> 11U) * 0x1p-53) - 3);
    quantiles.add(value);
    all.push_back(value);
  }
  std::sort(all.begin(), all.end());
  for (const double part : {0.0, 0.005, 0.02, 0.25, 0.5, 0.9, 0.99, 0.9999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(all.size())));
    const double exact = all[std::max<std::size_t>(rank, 1) - 1];
    EXPECT_NEAR(quantiles.at(part), exact, 0.005 * exact) << part;
  }
  EXPECT_EQ(quantiles.distribution().most, all.back());
}

}  // namespace
}  // namespace heddle::sim
