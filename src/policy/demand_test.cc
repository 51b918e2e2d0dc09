#include "policy/demand.h"

#include <cmath>

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Calendar kCalendar{.window = 10s, .windows_per_day = 8640};

Instant at(Duration time) {
  return Instant(time);
}

TEST(DemandMeter, AveragesGapsServiceAndTokens) {
  DemandMeter demand(at(0s), kCalendar, 1);
  EXPECT_EQ(demand.mean_gap(), 0);
  demand.arrived(at(4s), 100, kCalendar);
  EXPECT_DOUBLE_EQ(demand.mean_gap(), 4);
  EXPECT_DOUBLE_EQ(demand.token_rate(at(4s)), 10);
  demand.arrived(at(5s), 100, kCalendar);
  EXPECT_DOUBLE_EQ(demand.mean_gap(), 4 + 0.2 * (1 - 4));
  EXPECT_EQ(demand.in_system(), 2);
  demand.left(at(7s), 3s, kCalendar);
  EXPECT_DOUBLE_EQ(demand.mean_service(), 1 + 0.2 * (3 - 1));
  EXPECT_EQ(demand.last_used(), at(7s));
  demand.left(at(8s), std::nullopt, kCalendar);
  EXPECT_EQ(demand.last_used(), at(7s)) << "what was not served used nothing";
  EXPECT_EQ(demand.in_system(), 0);
}

TEST(DemandMeter, TokensCountLessAndLess) {
  DemandMeter demand(at(0s), kCalendar, 1);
  for (int i = 1; i <= 1000; ++i) {  // Ten a second, of 50 tokens each.
    demand.arrived(at(i * 100ms), 50, kCalendar);
  }
  EXPECT_NEAR(demand.token_rate(at(100s)), 500, 5);
  EXPECT_NEAR(demand.token_rate(at(110s)), 500 / std::exp(1), 2);
  demand.arrived(at(200s), 50, kCalendar);
  EXPECT_NEAR(demand.token_rate(at(200s)), 5, 0.1) << "a request alone is no rush";
}

TEST(DemandMeter, ForecastsTheLoadThatComesBack) {
  DemandMeter demand(at(0s), kCalendar, 1);
  EXPECT_FALSE(std::isfinite(demand.expected().error));
  for (std::int64_t window = 0; window < 6; ++window) {
    demand.arrived(at(window * 10s + 1s), 10, kCalendar);
    demand.left(at(window * 10s + 6s), 5s, kCalendar);
    demand.advance(at((window + 1) * 10s), kCalendar);
    demand.foresee(window, window + 1);
  }
  ASSERT_TRUE(demand.history().at(3));
  EXPECT_DOUBLE_EQ(demand.history().at(3)->mean, 0.5);
  EXPECT_NEAR(demand.expected().load.mean, 0.5, 1e-6);
  EXPECT_GE(demand.expected().load.peak, 1);
  EXPECT_LT(demand.expected().error, 0.01);
}

TEST(DemandMeter, LooksBeyondTheWindowAsFarAsPreparingTakes) {
  // A day has two windows, of which only the second is busy.
  const Calendar halves{.window = 10s, .windows_per_day = 2};
  DemandMeter demand(at(0s), halves, 3);
  for (std::int64_t window = 0; window < 8; ++window) {
    demand.remember(window, {.mean = window % 2 == 1 ? 2.0 : 0.0, .peak = 3});
    demand.foresee(window, window + 1);
  }
  const auto mean = [&](Duration lead, Instant now) {
    return demand.expected_within(lead, now, halves).load.mean;
  };
  EXPECT_NEAR(demand.expected().load.mean, 0, 0.1);
  EXPECT_NEAR(mean(3s, at(86s)), 0, 0.1);
  EXPECT_NEAR(mean(3s, at(88s)), 2, 0.1);
  EXPECT_NEAR(mean(5s, at(86s)), 2, 0.1);
  EXPECT_TRUE(demand.grows());
  demand.remember(8, {});
  demand.foresee(8, 9);
  EXPECT_FALSE(demand.grows()) << "the busy half comes first";
  EXPECT_NEAR(mean(3s, at(98s)), 2, 0.1);
}

TEST(DemandMeter, LooksBeyondTheWindowAlsoWhereOnlyDaysAgreeThatSomebodyComes) {
  // A second of one request in the second half of each day: too little for a mean that says so.
  const Calendar halves{.window = 10s, .windows_per_day = 2};
  DemandMeter demand(at(0s), halves, 7);
  for (std::int64_t window = 0; window < 8; ++window) {
    demand.remember(window, window % 2 == 1 ? Load{.mean = 0.001, .peak = 0.1} : Load{});
    demand.foresee(window, window + 1);
  }
  EXPECT_LT(demand.expected().asked().value(), 0.5);
  EXPECT_GT(demand.expected_within(3s, at(88s), halves).asked().value(), 0.8);
}

TEST(DemandMeter, MayKnowNothingButTheWindowBefore) {
  const Calendar halves{.window = 10s, .windows_per_day = 2};
  DemandMeter demand(at(0s), halves, 3, 5s, {.days = 0, .only = Expert::kLastWindow});
  for (std::int64_t window = 0; window < 8; ++window) {
    demand.remember(window, {.mean = window % 2 == 1 ? 2.0 : 0.0, .peak = 3});
    demand.foresee(window, window + 1);
  }
  EXPECT_EQ(demand.expected().expert, Expert::kLastWindow);
  EXPECT_NEAR(demand.expected().load.mean, 2, 1e-9) << "as it was, not as every other window was";
  EXPECT_FALSE(demand.expected().daily);
}

TEST(DemandMeter, RemembersWhatWasMeasuredBefore) {
  DemandMeter demand(at(0s), kCalendar, 1);
  demand.remember(0, {.mean = 2, .peak = 3});
  demand.foresee(-1, 1);
  EXPECT_NEAR(demand.expected().load.mean, 2, 1e-6);
}

}  // namespace
}  // namespace heddle::policy
