#include "cli/history_trace.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// `arrivals` requests, of which as many ended, of lengths mean - spread and mean + spread.
history::Traffic asked(std::int64_t arrivals, std::int64_t mean, std::int64_t spread) {
  history::Traffic traffic;
  for (std::int64_t i = 0; i < arrivals; ++i) {
    const std::int64_t tokens = i % 2 == 0 ? mean - spread : mean + spread;
    traffic.arrived();
    traffic.ended(tokens, 2 * tokens);
  }
  return traffic;
}

/// Twenty windows, of which the second has none; from the eleventh on "code" comes, too.
history::TrafficHistory some() {
  history::TrafficHistory history{.window = 300s};
  for (std::int64_t i = 0; i < 20; ++i) {
    if (i != 1) {
      history.windows[1000 + i]["chat"] = asked(10 * (i + 1), 200, 80);
    }
    if (i > 10) {
      history.windows[1000 + i]["code"] = asked(6, 50, 0);
    }
  }
  return history;
}

TEST(DrawTrace, NumbersOfRequestsAreThoseOfTheWindows) {
  const auto drawn = draw_trace(some(), {});
  ASSERT_TRUE(drawn) << drawn.error().message;
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> counts;
  Instant latest{};
  for (const sim::OtlpRow& row : drawn->rows) {
    EXPECT_GE(row.arrival, latest);
    EXPECT_GE(row.input_tokens, 1);
    latest = row.arrival;
    ++counts[{row.arrival.time_since_epoch() / 300s, row.model}];
  }
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ((counts[{i, "chat"}]), i == 1 ? 0 : 10 * (i + 1));
    EXPECT_EQ((counts[{i, "code"}]), i > 10 ? 6 : 0);
  }
  EXPECT_THAT(drawn->origin, HasSubstr("in each of 19 windows of 5m"));
  EXPECT_THAT(drawn->origin, HasSubstr("times and single lengths are drawn"));
}

TEST(DrawTrace, LengthsHaveTheirMeanAndSpread) {
  const auto drawn = draw_trace(some(), {.draws = 20});
  ASSERT_TRUE(drawn) << drawn.error().message;
  double count = 0;
  double sum = 0;
  double squares = 0;
  double answers = 0;
  for (const sim::OtlpRow& row : drawn->rows) {
    if (row.model == "chat") {
      const auto tokens = static_cast<double>(row.input_tokens);
      ++count;
      sum += tokens;
      squares += tokens * tokens;
      answers += static_cast<double>(row.output_tokens);
    } else {
      EXPECT_EQ(row.input_tokens, 50) << "all were alike";
      EXPECT_EQ(row.output_tokens, 100);
    }
  }
  EXPECT_NEAR(sum / count, 200, 2);
  EXPECT_NEAR(answers / count, 400, 4);
  EXPECT_NEAR(std::sqrt(squares / count - sum / count * sum / count), 80, 4);
}

TEST(DrawTrace, TheSameSeedGivesTheSameAndDrawsFollowEachOther) {
  const auto one = draw_trace(some(), {.seed = 5});
  const auto two = draw_trace(some(), {.seed = 5, .draws = 2});
  const auto other = draw_trace(some(), {.seed = 6});
  ASSERT_TRUE(one && two && other);
  ASSERT_EQ(two->rows.size(), 2 * one->rows.size());
  bool all_as_other = true;
  for (std::size_t i = 0; i < one->rows.size(); ++i) {
    EXPECT_EQ(one->rows[i].arrival, two->rows[i].arrival);
    EXPECT_EQ(one->rows[i].output_tokens, two->rows[i].output_tokens);
    all_as_other = all_as_other && one->rows[i].arrival == other->rows[i].arrival;
  }
  EXPECT_FALSE(all_as_other);
  EXPECT_GE(two->rows[one->rows.size()].arrival, Instant(20 * 300s));
}

TEST(DrawTrace, OnlyTheEndWhereThatIsAsked) {
  const auto drawn = draw_trace(some(), {.last = 62min});
  ASSERT_TRUE(drawn) << drawn.error().message;
  EXPECT_EQ(drawn->rows.size(), 13U * 140 + 9 * 6) << "windows 8 to 20 of chat, 12 to 20 of code";
}

TEST(DrawTrace, WhatIsTooLittleOrUnknownIsSaid) {
  const auto little = draw_trace(some(), {.last = 55min});
  ASSERT_FALSE(little);
  EXPECT_THAT(little.error().message, HasSubstr("requests in 11 windows of 5m"));
  EXPECT_THAT(little.error().message, HasSubstr("want at least 12"));
  history::TrafficHistory history = some();
  history.windows[1003]["engine"].arrived();
  const auto drawn = draw_trace(history, {});
  ASSERT_TRUE(drawn);
  EXPECT_THAT(drawn->problems,
              ElementsAre("engine: none of its 1 requests ended with a number of tokens"));
  for (auto& [window, models] : history.windows) {
    for (auto& [model, traffic] : models) {
      traffic = {.arrivals = traffic.arrivals};
    }
  }
  EXPECT_FALSE(draw_trace(history, {}));
  EXPECT_FALSE(draw_trace({.window = 300s}, {}));
}

}  // namespace
}  // namespace heddle::cli
