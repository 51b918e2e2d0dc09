#include "policy/load_history.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Calendar kCalendar{.window = 10s, .windows_per_day = 4};

Instant at(Duration time) {
  return Instant(time);
}

TEST(Calendar, NumbersWindowsFromItsZero) {
  EXPECT_EQ(kCalendar.window_at(at(0s)), 0);
  EXPECT_EQ(kCalendar.window_at(at(9'999ms)), 0);
  EXPECT_EQ(kCalendar.window_at(at(10s)), 1);
  EXPECT_EQ(kCalendar.window_at(at(-1ns)), -1);
  Calendar late = kCalendar;
  late.offset = 95s;
  EXPECT_EQ(late.window_at(at(0s)), 9);
  EXPECT_EQ(late.start_of(10), at(5s));
}

TEST(LoadHistory, ForgetsWhatItHasNoRoomFor) {
  LoadHistory history(4, 1);  // Two days of four windows.
  for (std::int64_t w = 0; w < 10; ++w) {
    history.record(w, {.mean = static_cast<double>(w), .peak = 20});
  }
  EXPECT_EQ(history.newest(), 9);
  EXPECT_FALSE(history.at(1));
  EXPECT_EQ(history.at(2)->mean, 2);
  EXPECT_EQ(history.at(9)->mean, 9);
  EXPECT_FALSE(history.at(10));
  EXPECT_FALSE(history.at(-1));
}

TEST(LoadHistory, SkippedWindowsAreMissingNotIdle) {
  LoadHistory history(4, 1);
  for (std::int64_t w = 0; w < 8; ++w) {
    history.record(w, {.mean = 1, .peak = 1});
  }
  history.record(10, {.mean = 2, .peak = 2});
  EXPECT_FALSE(history.at(8));
  EXPECT_FALSE(history.at(9));
  EXPECT_TRUE(history.at(7));
  history.record(1000, {.mean = 3, .peak = 3});  // Away for longer than it remembers.
  EXPECT_FALSE(history.at(999));
  EXPECT_FALSE(history.at(10));
  EXPECT_EQ(history.at(1000)->mean, 3);
}

TEST(LoadHistory, AClockThatWentBackForgetsTheFuture) {
  LoadHistory history(4, 1);
  for (std::int64_t w = 0; w < 8; ++w) {
    history.record(w, {.mean = 1, .peak = 1});
  }
  history.record(5, {.mean = 9, .peak = 9});
  EXPECT_EQ(history.newest(), 5);
  EXPECT_EQ(history.at(5)->mean, 9);
  EXPECT_TRUE(history.at(4));
  EXPECT_FALSE(history.at(6));
  history.record(7, {.mean = 2, .peak = 2});
  EXPECT_FALSE(history.at(6));
}

TEST(LoadMeter, IntegratesTheNumberInTheSystem) {
  LoadHistory history(4, 1);
  LoadMeter meter(at(0s));
  meter.change(at(2s), 2, kCalendar, history);   // 2 requests for 3 s,
  meter.change(at(5s), 3, kCalendar, history);   // 5 for 1 s,
  meter.change(at(6s), -4, kCalendar, history);  // 1 for 4 s: 6 + 5 + 4 = 15 request seconds.
  meter.advance(at(10s), kCalendar, history);
  EXPECT_EQ(history.at(0), (Load{.mean = 1.5, .peak = 5}));
  meter.advance(at(30s), kCalendar, history);  // The one that stayed makes the next peaks.
  EXPECT_EQ(history.at(1), (Load{.mean = 1, .peak = 1}));
  EXPECT_EQ(history.at(2), (Load{.mean = 1, .peak = 1}));
  EXPECT_FALSE(history.at(3));
}

TEST(LoadMeter, EntersAWindowOnlyIfHalfOfItWasMeasured) {
  LoadHistory history(4, 1);
  LoadMeter meter(at(6s));
  meter.advance(at(25s), kCalendar, history);
  EXPECT_FALSE(history.at(0));
  EXPECT_EQ(history.at(1), (Load{}));

  LoadHistory other(4, 1);
  LoadMeter early(at(4s));
  early.change(at(4s), 3, kCalendar, other);
  early.advance(at(11s), kCalendar, other);
  EXPECT_EQ(other.at(0), (Load{.mean = 3, .peak = 3}));  // Over the 6 s that were measured.
}

TEST(LoadMeter, SurvivesJumpsOfTheWallClock) {
  LoadHistory history(4, 1);
  LoadMeter meter(at(0s));
  meter.change(at(0s), 1, kCalendar, history);
  meter.advance(at(12s), kCalendar, history);
  Calendar jumped = kCalendar;
  jumped.offset = 20s;  // 12 s is now 32 s on the wall: window 3.
  meter.advance(at(20s), jumped, history);
  EXPECT_TRUE(history.at(0));
  EXPECT_FALSE(history.at(1));
  EXPECT_FALSE(history.at(2));
  EXPECT_EQ(history.at(3), (Load{.mean = 1, .peak = 1}));
  meter.advance(at(32s), kCalendar, history);  // Back again: window 2 at 20 s, 3 from 30 s.
  meter.advance(at(40s), kCalendar, history);
  EXPECT_EQ(history.newest(), 3);
  EXPECT_EQ(history.at(3)->mean, 1);
  Calendar ahead = kCalendar;
  ahead.offset = 24h;  // Thousands of windows later.
  meter.advance(at(60s), ahead, history);
  EXPECT_EQ(history.newest(), ahead.window_at(at(60s)) - 1);
}

// Property: the recorded means, times the window, are the request seconds that went in.
TEST(LoadMeter, LosesNoRequestSeconds) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    LoadHistory history(100, 10);
    LoadMeter meter(at(0s));
    Duration now{};
    double expected = 0;
    double peak = 0;
    for (int i = 0; i < 300; ++i) {
      const Duration step(static_cast<std::int64_t>(rng.below(3'000'000'000)));
      expected += static_cast<double>(meter.in_system()) * to_seconds(step);
      now += step;
      const auto leaving =
          static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(meter.in_system()) + 1));
      meter.change(at(now), rng.below(2) == 0 ? 1 : -leaving, kCalendar, history);
      peak = std::max(peak, static_cast<double>(meter.in_system()));
    }
    meter.change(at(now), -meter.in_system(), kCalendar, history);
    meter.advance(at(now + 10s), kCalendar, history);
    double recorded = 0;
    double top = 0;
    for (std::int64_t w = 0; w <= history.newest(); ++w) {
      recorded += history.at(w)->mean * 10;
      top = std::max(top, history.at(w)->peak);
      ASSERT_LE(history.at(w)->mean, history.at(w)->peak + 1e-6);
    }
    ASSERT_NEAR(recorded, expected, 1e-4 * (1 + expected));
    ASSERT_EQ(top, peak);
  }
}

}  // namespace
}  // namespace heddle::policy
