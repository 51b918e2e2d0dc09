#include "lab/exchange_times.h"

#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

TEST(ExchangeTimes, AreMeasuredAmongThreads) {
  const Result<ExchangeTimes> times = time_exchanges(2);
  ASSERT_TRUE(times.has_value()) << times.error().message;
  EXPECT_EQ(times->ranks, 2);
  EXPECT_GT(times->meet, 0);
  EXPECT_GE(times->number, 0);
  EXPECT_FALSE(time_exchanges(1000).has_value()) << "more than a group may have";
}

TEST(ExchangeTimes, AreAddedToWhatARankComputes) {
  const twin::StepTimes step = with_exchanges({.fixed = 1, .token = 2, .row = 3, .context = 4},
                                              {.ranks = 2, .meet = 0.5, .number = 0.25},
                                              2,
                                              8,
                                              16);
  EXPECT_DOUBLE_EQ(step.fixed, 1 + 8 * 0.5) << "five sums, the logits, and twice that all agree";
  EXPECT_DOUBLE_EQ(step.token, 2 + 5 * 8 * 0.25);
  EXPECT_DOUBLE_EQ(step.row, 3 + 16 * 0.25);
  EXPECT_DOUBLE_EQ(step.context, 4);
}

}  // namespace
}  // namespace heddle::lab
