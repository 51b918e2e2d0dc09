#include "cli/trace_stretches.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using namespace std::chrono_literals;

/// One request every `gap`.
std::vector<sim::TraceRow> rows(std::size_t count, Duration gap) {
  std::vector<sim::TraceRow> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.push_back({.arrival = Instant(static_cast<Duration::rep>(i) * gap),
                    .input_tokens = static_cast<std::int64_t>(i)});
  }
  return made;
}

std::size_t first_counted(const std::vector<sim::TraceRow>& all, const Stretch& stretch) {
  std::size_t first = stretch.begin;
  while (first < stretch.end && all[first].arrival < stretch.counted) {
    ++first;
  }
  return first;
}

TEST(DrawStretches, AShortTraceIsTakenWhole) {
  const auto all = rows(100, 60s);
  for (const std::int64_t most : {0, 100, 1000}) {
    const TracePart part = draw_stretches(all, 600s, most, 1);
    EXPECT_TRUE(part.whole);
    ASSERT_EQ(part.stretches.size(), 1U);
    EXPECT_EQ(part.requests, 90);
    EXPECT_EQ(part.counted, 99 * 60s - 600s);
    EXPECT_EQ(part.stretches[0].end, 100U);
  }
}

TEST(DrawStretches, ALongOneHasStretchesFromAllOfIt) {
  const auto all = rows(86'400, 1s);
  const TracePart part = draw_stretches(all, 0s, 30'000, 3);
  EXPECT_FALSE(part.whole);
  EXPECT_EQ(part.stretches.size(), 24U);
  EXPECT_NEAR(static_cast<double>(part.requests), 15'000, 50);
  std::size_t replayed = 0;
  std::set<std::int64_t> hours;
  for (const Stretch& stretch : part.stretches) {
    replayed += stretch.end - stretch.begin;
    hours.insert(stretch.counted.time_since_epoch() / 1h);
    EXPECT_GE(all[first_counted(all, stretch)].arrival, stretch.counted);
    EXPECT_LE(stretch.from, all[stretch.begin].arrival);
    EXPECT_LT(stretch.before, part.counted);
  }
  EXPECT_LE(replayed, 30'100U);
  EXPECT_EQ(hours.size(), 24U) << "each hour has its own";
  const auto begins_of = [](const TracePart& some) {
    std::vector<std::size_t> begins;
    for (const Stretch& stretch : some.stretches) {
      begins.push_back(stretch.begin);
    }
    return begins;
  };
  EXPECT_EQ(begins_of(part), begins_of(draw_stretches(all, 0s, 30'000, 3)));
  EXPECT_NE(begins_of(part), begins_of(draw_stretches(all, 0s, 30'000, 4)));
}

TEST(DrawStretches, NothingBeforeTheWarmupCounts) {
  const auto all = rows(86'400, 1s);
  for (const Stretch& stretch : draw_stretches(all, 6h, 10'000, 3).stretches) {
    EXPECT_GE(stretch.counted, Instant(6h));
  }
}

TEST(BeginningOf, EndsWhereItIsTold) {
  const auto all = rows(1000, 60s);
  const TracePart whole = whole_trace(all, 600s);
  const TracePart part = beginning_of(whole, all, 1, Instant(3600s));
  EXPECT_EQ(part.stretches[0].end, 61U);
  EXPECT_EQ(part.requests, 51);
  EXPECT_FALSE(part.whole);
  EXPECT_TRUE(beginning_of(whole, all, 1, Instant(100h)).whole);
}

TEST(StretchSource, GivesItsRequestsByItsOwnClock) {
  const auto all = rows(100, 1s);
  const Stretch stretch{.begin = 10, .end = 12, .from = Instant(9s), .counted = Instant(11s)};
  StretchSource source(all, stretch);
  EXPECT_EQ(source.last(), Instant(9s));
  sim::TraceRow row;
  ASSERT_TRUE(source.next(row));
  EXPECT_EQ(row.arrival, Instant(1s));
  EXPECT_EQ(row.input_tokens, 10);
  ASSERT_TRUE(source.next(row));
  EXPECT_FALSE(source.next(row));
  EXPECT_EQ(source.last(), Instant(11s));
}

}  // namespace
}  // namespace heddle::cli
