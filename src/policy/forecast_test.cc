#include "policy/forecast.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

// Days of four windows. The peak is the mean plus 1 unless a test says otherwise.
LoadHistory history_of(const std::vector<double>& means, std::int64_t days = 3) {
  LoadHistory history(4, days);
  for (std::size_t w = 0; w < means.size(); ++w) {
    if (means[w] >= 0) {
      history.record(static_cast<std::int64_t>(w), {.mean = means[w], .peak = means[w] + 1});
    }
  }
  return history;
}

constexpr double kMissing = -1;
constexpr ForecastOptions kOptions{.days = 3, .error_windows = 2, .peak_deviations = 0};

double mean_of(Expert expert,
               const LoadHistory& history,
               std::int64_t window,
               ForecastOptions options = kOptions) {
  return predict(expert, history, window, options).value().mean;
}

TEST(Predict, SeasonalIsTheMeanOfTheSameTimeOnEarlierDays) {
  const LoadHistory history = history_of({1, 2, 3, 4, 3, 2, 1, 0, 5, 8});
  EXPECT_EQ(mean_of(Expert::kSeasonal, history, 10), 2);  // (3 + 1) / 2
  EXPECT_EQ(predict(Expert::kSeasonal, history, 10, kOptions)->peak, 3);
  EXPECT_EQ(mean_of(Expert::kSeasonal, history, 12), 3);  // (1 + 3 + 5) / 3
  ForecastOptions one_day = kOptions;
  one_day.days = 1;
  EXPECT_EQ(mean_of(Expert::kSeasonal, history, 12, one_day), 5);
}

// Window 6: P = 3. Window 5: P = 2, real 6, error 4. Window 4: P = 1, real 2, error 1.
TEST(Predict, CorrectedWeighsTheNewestErrorMost) {
  const LoadHistory history = history_of({1, 2, 3, 4, 2, 6});
  EXPECT_DOUBLE_EQ(mean_of(Expert::kCorrected, history, 6), 3 + (2 * 4 + 1 * 1) / 3.0);
  ForecastOptions printed = kOptions;
  printed.weights = ErrorWeights::kPrinted;
  EXPECT_DOUBLE_EQ(mean_of(Expert::kCorrected, history, 6, printed), 3 + (1 * 4 + 2 * 1) / 3.0);
}

// With N = 10, the printed weights put 512/1023 on the window ten ago and 1/1023 on the last one.
TEST(Predict, PrintedWeightsSumToOneOverTheSameNormaliser) {
  std::vector<double> means(24, 0.0);
  ForecastOptions options{.days = 1, .error_windows = 10, .peak_deviations = 0};
  LoadHistory history(12, 1);
  for (std::int64_t w = 0; w < 24; ++w) {
    history.record(w, {.mean = w == 23 ? 1023.0 : 0.0, .peak = 1023});
  }
  EXPECT_NEAR(mean_of(Expert::kCorrected, history, 24, options), 512 * 1023.0 / 1023, 1e-9);
  options.weights = ErrorWeights::kPrinted;
  EXPECT_NEAR(mean_of(Expert::kCorrected, history, 24, options), 1, 1e-9);
}

TEST(Predict, CorrectedIsNeverNegativeAndItsPeakNeverBelowItsMean) {
  LoadHistory history(4, 3);
  for (std::int64_t w = 0; w < 6; ++w) {
    history.record(w, {.mean = w < 4 ? 5.0 : 0.0, .peak = w < 4 ? 5.0 : 0.0});
  }
  EXPECT_EQ(predict(Expert::kCorrected, history, 6, kOptions), (Load{.mean = 0, .peak = 0}));
  LoadHistory lopsided(4, 3);  // Peaks fall by 4 while means stay.
  for (std::int64_t w = 0; w < 6; ++w) {
    lopsided.record(w, {.mean = 5, .peak = w < 4 ? 9.0 : 5.0});
  }
  lopsided.record(6, {.mean = 7, .peak = 7});
  const auto load = predict(Expert::kCorrected, lopsided, 7, kOptions);
  EXPECT_GE(load->peak, load->mean);
}

TEST(Predict, AMissingWindowLosesItsTerm) {
  const LoadHistory history = history_of({1, 2, 3, 4, 2, kMissing, 9});
  // Window 6 recorded last; ask for 7 with N = 3: terms 6 (error 6, weight 4), 4 (error 1, weight
  // 1).
  ForecastOptions options = kOptions;
  options.error_windows = 3;
  EXPECT_DOUBLE_EQ(mean_of(Expert::kCorrected, history, 7, options), 4 + (4 * 6 + 1 * 1) / 5.0);
  const LoadHistory gap = history_of({1, 2, 3, 4, 2, kMissing, kMissing});
  EXPECT_EQ(mean_of(Expert::kLastWindow, gap, 6), 2);
  EXPECT_FALSE(predict(Expert::kLastWindow, gap, 7, kOptions));  // More than N = 2 ago.
}

TEST(Predict, TheCorrectionRunsOnIntoTheDayBefore) {
  const LoadHistory history = history_of({1, 1, 1, 1, 1, 1, 1, 4});
  // Window 8 is the first of its day: windows 7 (error 3) and 6 (error 0) belong to the day before.
  EXPECT_DOUBLE_EQ(mean_of(Expert::kCorrected, history, 8), 1 + 2 * 3 / 3.0);
}

TEST(Predict, WithoutAnEarlierDayTheMeanOfTodayStandsIn) {
  const LoadHistory history = history_of({2, 4});
  EXPECT_EQ(mean_of(Expert::kSeasonal, history, 2), 3);
  // Errors against 3: newest +1 (weight 2), before -1 (weight 1).
  EXPECT_DOUBLE_EQ(mean_of(Expert::kCorrected, history, 2), 3 + (2 * 1 - 1) / 3.0);
}

TEST(Predict, AnEmptyHistoryKnowsNothing) {
  const LoadHistory history(4, 3);
  for (const Expert expert :
       {Expert::kLastWindow, Expert::kCorrected, Expert::kSeasonal, Expert::kLastOrSeasonal}) {
    EXPECT_FALSE(predict(expert, history, 0, kOptions)) << expert_name(expert);
  }
  const Forecast forecast = Forecaster().forecast(history, 0, kOptions);
  EXPECT_EQ(forecast.load, Load{});
  EXPECT_TRUE(std::isinf(forecast.error));
}

TEST(Predict, LooksOnlyAtThePast) {
  const LoadHistory all = history_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const LoadHistory some = history_of({1, 2, 3, 4, 5, 6, 7});
  for (const Expert expert : {Expert::kLastWindow, Expert::kCorrected, Expert::kLastOrSeasonal}) {
    EXPECT_EQ(predict(expert, all, 7, kOptions), predict(expert, some, 7, kOptions));
  }
}

TEST(Forecaster, PicksTheExpertWithTheLeastRecentError) {
  ForecastOptions options = kOptions;
  options.error_decay = 1;
  Forecaster forecaster;
  LoadHistory history(4, 3);
  // Strictly seasonal: 8, 0, 8, 0 every day. The last window is always wrong by 8.
  for (std::int64_t w = 0; w < 12; ++w) {
    history.record(w, {.mean = w % 2 == 0 ? 8.0 : 0.0, .peak = 8});
    forecaster.score(history, w, options);
  }
  const Forecast forecast = forecaster.forecast(history, 12, options);
  EXPECT_EQ(forecast.load.mean, 8);
  EXPECT_NE(forecast.expert, Expert::kLastWindow);
  EXPECT_LT(forecast.error, forecaster.error(Expert::kLastWindow));
  // 11 judged: wrong by 8 each; five of them had a load of 8.
  EXPECT_DOUBLE_EQ(forecaster.error(Expert::kLastWindow), 88.0 / 40);
}

TEST(Forecaster, ErrorIsDecayedAbsoluteErrorOverDecayedLoad) {
  ForecastOptions options = kOptions;
  options.error_decay = 0.5;
  Forecaster forecaster;
  LoadHistory history(4, 3);
  const std::vector<double> loads = {2, 3, 6};
  for (std::int64_t w = 0; w < 3; ++w) {
    history.record(w, {.mean = loads[static_cast<std::size_t>(w)], .peak = 9});
    forecaster.score(history, w, options);
  }
  // Last window: off by 1 on 3, then by 3 on 6; the first window had no prediction.
  EXPECT_DOUBLE_EQ(forecaster.error(Expert::kLastWindow), (1 * 0.5 + 3) / (3 * 0.5 + 6));
}

TEST(Forecaster, NothingToJudgeByIsAnInfiniteError) {
  Forecaster forecaster;
  LoadHistory history(4, 3);
  history.record(0, {.mean = 4, .peak = 5});
  forecaster.score(history, 0, kOptions);
  const Forecast forecast = forecaster.forecast(history, 1, kOptions);
  EXPECT_EQ(forecast.load.mean, 4);
  EXPECT_TRUE(std::isinf(forecast.error));
  history.record(1, {.mean = 0, .peak = 0});
  forecaster.score(history, 1, kOptions);  // Wrong, and no load to compare with.
  EXPECT_TRUE(std::isinf(forecaster.error(Expert::kLastWindow)));
  history.record(2, {.mean = 0, .peak = 0});
  Forecaster idle;
  idle.score(history, 2, kOptions);  // Always idle, and predicted so: perfect.
  EXPECT_EQ(idle.error(Expert::kLastWindow), 0);
}

TEST(Forecaster, ThePeakHasThePoissonFloor) {
  ForecastOptions options = kOptions;
  options.peak_deviations = 2;
  const LoadHistory history = history_of({9, 9});
  EXPECT_EQ(Forecaster().forecast(history, 2, options).load.peak, 9 + 2 * 3);
  EXPECT_EQ(Forecaster().forecast(history, 2, kOptions).load.peak, 10);
}

TEST(Forecaster, OneExpertAloneAsThePaperHasIt) {
  ForecastOptions options = kOptions;
  options.only = Expert::kCorrected;
  const LoadHistory history = history_of({1, 2, 3, 4, 2, 6});
  const Forecast forecast = Forecaster().forecast(history, 6, options);
  EXPECT_EQ(forecast.expert, Expert::kCorrected);
  EXPECT_DOUBLE_EQ(forecast.load.mean, 6);
}

// Property: finite, non-negative, peak >= mean, whatever is missing and however the clock jumps.
TEST(Forecaster, KnowsHowOftenItWasRightThatSomebodyAsks) {
  // A day has a busy window of which nobody knows how busy, and three without anybody.
  Rng rng(7);
  LoadHistory history(4, 3);
  Forecaster forecaster;
  EXPECT_FALSE(forecaster.forecast(history, 0, kOptions).asked());
  for (std::int64_t w = 0; w < 60; ++w) {
    const double mean = w % 4 == 2 ? 0.5 + 5.0 * static_cast<double>(rng.below(3)) : 0;
    history.record(w, {.mean = mean, .peak = std::ceil(mean)});
    forecaster.score(history, w, kOptions);
  }
  const Forecast busy = forecaster.forecast(history, 62, kOptions);
  EXPECT_GT(busy.error, 0.35);
  EXPECT_TRUE(busy.busy);
  EXPECT_GT(busy.asked().value(), 0.8);
  EXPECT_LT(busy.asked().value(), 1) << "nothing is certain";
  const Forecast idle = forecaster.forecast(history, 60, kOptions);
  EXPECT_FALSE(idle.busy);
  EXPECT_LT(idle.asked().value(), 0.1);
}

TEST(Forecaster, WhatEveryDayBroughtIsExpectedThoughTheExpertsWereMisled) {
  // The same window of each day is busy, and others by chance, so that claims often fail.
  LoadHistory history(6, 7);
  Forecaster forecaster;
  Rng rng(11);
  const auto record = [&](std::int64_t window) {
    const bool busy = window % 6 == 3 || rng.below(4) == 0;
    history.record(window, busy ? Load{.mean = 1, .peak = 2} : Load{});
    forecaster.score(history, window, kOptions);
  };
  for (std::int64_t w = 0; w < 4; ++w) {
    record(w);
  }
  EXPECT_FALSE(forecaster.forecast(history, 5, kOptions).daily) << "no day has had it";
  for (std::int64_t w = 4; w < 33; ++w) {
    record(w);
  }
  const Forecast expected = forecaster.forecast(history, 33, kOptions);
  EXPECT_GT(expected.daily.value(), 0.7);
  EXPECT_LT(expected.daily.value(), 1);
  EXPECT_GE(expected.asked().value(), expected.daily.value());
  EXPECT_EQ(forecaster.forecast(history, 32, kOptions).daily_after, expected.daily);
}

TEST(Forecaster, AClaimThatFailsIsBelievedLess) {
  LoadHistory history(4, 3);
  Forecaster forecaster;
  const auto next = [&](std::int64_t window, double mean) {
    history.record(window, {.mean = mean, .peak = std::ceil(mean)});
    forecaster.score(history, window, {.only = Expert::kLastWindow});
    return forecaster.forecast(history, window + 1, {.only = Expert::kLastWindow}).borne_out;
  };
  (void)next(0, 2);
  double believed = next(1, 2);
  for (std::int64_t w = 2; w < 10; ++w) {
    const double now = next(w, w % 2 == 0 ? 0 : 2);
    if (w % 2 == 1) {
      EXPECT_LT(now, believed) << w;
      believed = now;
    }
  }
}

TEST(Forecaster, SurvivesGapsAndJumps) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    LoadHistory history(6, 2);
    Forecaster forecaster;
    std::int64_t window = 0;
    for (int i = 0; i < 200; ++i) {
      window = std::max<std::int64_t>(
          0, window + 1 + (rng.below(8) == 0 ? 5 : 0) - (rng.below(20) == 0 ? 7 : 0));
      const auto peak = static_cast<double>(rng.below(50));
      history.record(window, {.mean = peak * 0.5, .peak = peak});
      forecaster.score(history, window, kOptions);
      const Forecast forecast = forecaster.forecast(history, window + 1, kOptions);
      ASSERT_TRUE(std::isfinite(forecast.load.peak));
      ASSERT_GE(forecast.load.mean, 0);
      ASSERT_GE(forecast.load.peak, forecast.load.mean);
      ASSERT_GE(forecast.error, 0);
    }
  }
}

}  // namespace
}  // namespace heddle::policy
