#include "sim/attainment_interval.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegin{100s};

/// One request a second, of which those that `met` says are in time.
AttainmentInterval day(bool (*met)(int)) {
  AttainmentInterval interval(kBegin, 86'400s);
  for (int second = 0; second <= 86'400; second += 10) {
    interval.add(kBegin + second * 1s, met(second));
  }
  return interval;
}

TEST(AttainmentInterval, KnowsWhatAlwaysHappens) {
  const AttainmentInterval interval = day([](int) { return true; });
  EXPECT_EQ(interval.attainment(), 1);
  EXPECT_EQ(interval.bounds().low, 1);
  EXPECT_EQ(interval.bounds().high, 1);
}

TEST(AttainmentInterval, LateOnesSpreadOverTheDayTellMoreThanABadHour) {
  const AttainmentInterval spread = day([](int second) { return second / 10 % 24 != 0; });
  const AttainmentInterval hour = day([](int second) { return second / 3600 != 12; });
  EXPECT_NEAR(spread.attainment(), 23.0 / 24, 0.001);
  EXPECT_NEAR(hour.attainment(), 23.0 / 24, 0.001);
  const auto sure = spread.bounds();
  const auto unsure = hour.bounds();
  EXPECT_LT(sure.high - sure.low, 0.01);
  EXPECT_GT(unsure.high - unsure.low, 0.05);
  EXPECT_LE(unsure.low, hour.attainment());
  EXPECT_GE(unsure.high, hour.attainment());
  EXPECT_EQ(hour.bounds().low, unsure.low) << "nothing is drawn by chance of the day";
}

TEST(AttainmentInterval, CountsWhatOthersHaveCounted) {
  AttainmentInterval all{Instant{}, std::chrono::hours(24)};
  AttainmentInterval odd = all;
  AttainmentInterval even = all;
  for (int i = 0; i < 1440; ++i) {
    const Instant at{std::chrono::minutes(i)};
    all.add(at, i % 7 != 0);
    (i % 2 == 0 ? even : odd).add(at, i % 7 != 0);
  }
  even.add(odd);
  EXPECT_EQ(even.attainment(), all.attainment());
  EXPECT_EQ(even.bounds().low, all.bounds().low);
}

TEST(AttainmentInterval, NobodyAsked) {
  const AttainmentInterval none(kBegin, 0s);
  EXPECT_EQ(none.attainment(), 0);
  EXPECT_EQ(none.bounds().high, 0);
}

}  // namespace
}  // namespace heddle::sim
