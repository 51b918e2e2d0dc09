#include "policy/autoscale.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{100s};

Instant at(Duration time) {
  return Instant(time);
}

TEST(SlidingSum, ForgetsSliceBySlice) {
  SlidingSum sum(10s, at(0s));
  sum.add(at(0s), 1);
  sum.add(at(5500ms), 2);
  EXPECT_EQ(sum.sum(at(9999ms)), 3);
  EXPECT_EQ(sum.sum(at(10s)), 2);  // The slice [0, 1) has left.
  EXPECT_EQ(sum.covered(at(10s)), 9s);
  EXPECT_EQ(sum.sum(at(14999ms)), 2);
  EXPECT_EQ(sum.sum(at(15s)), 0);
  sum.add(at(1h), 7);
  EXPECT_EQ(sum.sum(at(1h)), 7);
  EXPECT_EQ(sum.covered(at(2s)), 2s);
}

TEST(LoadAverage, IsTheTimeAverage) {
  LoadAverage average(5s, at(0s));
  average.set(at(0s), 4);
  EXPECT_DOUBLE_EQ(average.mean(at(2s)), 4);
  average.set(at(2s), 0);
  EXPECT_DOUBLE_EQ(average.mean(at(4s)), 2);
  EXPECT_DOUBLE_EQ(average.mean(at(20s)), 0) << "an idle model has no load after 5 s";
  average.set(at(30s), 10);
  EXPECT_DOUBLE_EQ(average.mean(at(1h)), 10) << "nothing happened for an hour";
}

// Property: near the exact average over the time that it covers, whatever the steps are.
TEST(LoadAverage, AgreesWithTheIntegral) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    LoadAverage average(5s, at(0s));
    std::vector<std::pair<Duration, std::int64_t>> steps = {{0s, 0}};
    Duration now{};
    for (int i = 0; i < 60; ++i) {
      now += Duration(static_cast<std::int64_t>(rng.below(700'000'000)));
      steps.emplace_back(now, static_cast<std::int64_t>(rng.below(50)));
      average.set(at(now), steps.back().second);
    }
    now += 100ms;
    const Duration from = std::max(Duration{}, (now / 500ms - 9) * Duration(500ms));
    double integral = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Duration end = i + 1 < steps.size() ? steps[i + 1].first : now;
      const Duration begin = std::max(from, steps[i].first);
      if (end > begin) {
        integral +=
            static_cast<double>((end - begin).count()) * static_cast<double>(steps[i].second);
      }
    }
    ASSERT_NEAR(average.mean(at(now)), integral / static_cast<double>((now - from).count()), 1e-6);
  }
}

std::vector<InstanceView> instances(std::vector<std::int64_t> running) {
  std::vector<InstanceView> result;
  for (std::size_t i = 0; i < running.size(); ++i) {
    result.push_back({.id = ReplicaId(i), .running = running[i], .started = at(1s)});
  }
  return result;
}

Scaling scale(double load, const std::vector<InstanceView>& running, std::int64_t starting = 0) {
  return choose_scaling(load, 32, running, starting, kNow, {});
}

TEST(Scaling, StartsAbove80Percent) {
  EXPECT_EQ(scale(25.6, instances({25})), Scaling{});
  EXPECT_EQ(scale(26, instances({25})).start, 1);
  EXPECT_EQ(scale(26, instances({25}), 1).start, 0) << "one is starting";
  EXPECT_EQ(scale(100, instances({25})).start, 3);  // ceil(100 / 25.6) = 4.
  EXPECT_EQ(scale(0.1, {}).start, 1);
  EXPECT_EQ(scale(0, {}), Scaling{});
}

TEST(Scaling, StopsBelow50PercentThoseWithTheFewestRequests) {
  const Scaling scaling = scale(20, instances({12, 3, 5}));  // 20 < 48: ceil(20 / 16) = 2.
  EXPECT_EQ(scaling.reason, ScaleReason::kTooMany);
  EXPECT_EQ(scaling.stop, std::vector{ReplicaId(1)});
  EXPECT_EQ(scale(33, instances({12, 12})), Scaling{}) << "between the two limits";
}

TEST(Scaling, TheLastInstanceGoesOnlyWhenThereIsNoLoadAtAll) {
  EXPECT_TRUE(scale(0.01, instances({0})).stop.empty());
  EXPECT_EQ(scale(0, instances({0})).stop, std::vector{ReplicaId(0)});
}

TEST(Scaling, AsManyAsAreToStayStayWithoutLoad) {
  const std::vector<InstanceView> two = {{.id = ReplicaId(1)}, {.id = ReplicaId(2)}};
  EXPECT_EQ(choose_scaling(0, 32, two, 0, kNow, {.least = 1}).stop, std::vector{ReplicaId(2)});
  EXPECT_TRUE(choose_scaling(0, 32, two, 0, kNow, {.least = 2}).stop.empty());
}

TEST(Scaling, YoungInstancesAndThoseThatStartStay) {
  std::vector<InstanceView> two = instances({5, 0});
  two[1].started = kNow - 4s;
  EXPECT_EQ(scale(1, two).stop, std::vector{ReplicaId(0)});
  EXPECT_EQ(scale(0, two).stop, std::vector{ReplicaId(0)});
  EXPECT_TRUE(scale(0, {}, 2).stop.empty());
}

ModelDemand forecast(double mean, double peak, std::int64_t running) {
  return {.mean_load = mean, .peak_load = peak, .instances = running, .load_time = 1s};
}

std::size_t replicas(const ModelDemand& demand) {
  return desired_replicas(demand, ScoreVariant::kCorrected).size();
}

TEST(GateDemand, AForecastThatHoldsIsTakenAsItIs) {
  const ModelDemand gated = gate_demand(forecast(60, 120, 1), {.error = 0.35}, Heat::kOther, 500);
  EXPECT_EQ(gated.mean_load, 60);
  EXPECT_EQ(gated.peak_load, 120);
}

TEST(GateDemand, WithoutOneAHotModelHasOneBurstReplicaByItsRecentPeak) {
  const Forecast bad;
  for (const std::int64_t running : {0, 1, 2, 3, 7}) {
    const ModelDemand demand = forecast(60, 120, running);
    const auto wanted =
        desired_replicas(gate_demand(demand, bad, Heat::kHot, 1000), ScoreVariant::kCorrected);
    ASSERT_EQ(wanted.size(), 1U) << running;
    EXPECT_EQ(wanted[0].kind, ReplicaKind::kBurst);
  }
  EXPECT_EQ(replicas(gate_demand(forecast(60, 120, 3), bad, Heat::kHot, 70)), 0U)
      << "three serve 76.8";
}

TEST(GateDemand, WithoutOneAnyOtherModelHasNone) {
  EXPECT_EQ(replicas(gate_demand(forecast(60, 120, 0), {.error = 0.36}, Heat::kOther, 500)), 0U);
}

TEST(GateDemand, OneThatIsRightOnlyInThatSomebodyWillAskIsGoodForOneInstance) {
  const Forecast claim{
      .load = {.mean = 60, .peak = 120}, .error = 2, .busy = true, .borne_out = 0.8};
  const ModelDemand gated = gate_demand(forecast(60, 120, 0), claim, Heat::kOther, 0);
  const auto wanted = desired_replicas(gated, ScoreVariant::kValue);
  ASSERT_EQ(wanted.size(), 1U);
  EXPECT_DOUBLE_EQ(wanted[0].worth.score, 0.8) << "a second to load, needed in 8 of 10 cases";
  EXPECT_EQ(replicas(gate_demand(forecast(60, 120, 1), claim, Heat::kOther, 0)), 0U);
  const Forecast seldom{
      .load = {.mean = 60, .peak = 120}, .error = 2, .busy = true, .borne_out = 0.4};
  EXPECT_EQ(replicas(gate_demand(forecast(60, 120, 0), seldom, Heat::kOther, 0)), 0U);
}

TEST(GateDemand, WhatIsLikelyInTheWindowThatFollowsIsLoadedForALessLikelyOne) {
  const auto wanted = [](double now, std::optional<double> after) {
    const Forecast daily{.error = 2, .borne_out = 0.9, .daily = now, .daily_after = after};
    return replicas(gate_demand(forecast(0, 0, 0), daily, Heat::kOther, 0));
  };
  EXPECT_EQ(wanted(0.3, 0.5), 1U);
  EXPECT_EQ(wanted(0.3, 0.4), 0U);
  EXPECT_EQ(wanted(0.3, std::nullopt), 0U);
  EXPECT_EQ(wanted(0.2, 0.9), 0U);
  EXPECT_EQ(wanted(0.6, 0.1), 1U);
}

TEST(GateDemand, WhatEarlierDaysSayIsGoodForOneInstanceThoughNoLoadIsForecast) {
  const Forecast daily{.error = 2, .busy = false, .borne_out = 0.9, .daily = 0.8};
  const auto wanted = desired_replicas(gate_demand(forecast(0, 0, 0), daily, Heat::kOther, 0),
                                       ScoreVariant::kValue);
  ASSERT_EQ(wanted.size(), 1U);
  EXPECT_DOUBLE_EQ(wanted[0].worth.score, 0.8);
}

TEST(RecentPeak, IsTheLargestOfTheWindowsBefore) {
  LoadHistory history(4, 1);
  history.record(0, {.mean = 1, .peak = 50});
  history.record(2, {.mean = 1, .peak = 7});
  history.record(3, {.mean = 1, .peak = 3});
  EXPECT_EQ(recent_peak(history, 4, 3), 7);
  EXPECT_EQ(recent_peak(history, 4, 4), 50);
  EXPECT_EQ(recent_peak(history, 2, 1), 0);
}

}  // namespace
}  // namespace heddle::policy
