// External engines that come before they are asked for: the whole manager, over hosts that start,
// suspend and resume engines in known times.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/test_bench.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kPageBytes;

constexpr Duration kWindow = 60s;
constexpr std::int64_t kWindowsPerDay = 4;
constexpr Duration kStart = 5s;
constexpr Duration kResume = 1s;
constexpr Duration kSuspend = 500ms;
constexpr std::int64_t kPages = 12;  ///< Of each engine; the device has 20.

/// Engines a and b, of which one at a time can be on the only device.
Configure two_engines() {
  PlannerOptions planner{.prewarm = true, .value = true};
  planner.calendar = {.window = kWindow, .windows_per_day = kWindowsPerDay};
  Configure configuration{
      .options = {.drain_after = 1s, .planner = planner},
      .devices = {{.id = kDevice, .name = "d", .pages = 20, .page_bytes = kPageBytes}}};
  for (const ModelId id : {kA, kB}) {
    configuration.models.push_back({.id = id,
                                    .name = id == kA ? "a" : "b",
                                    .context = 8,
                                    .slo = {.ttft = 500ms},
                                    .footprints = {{kDevice, {.image_pages = kPages}}},
                                    .external = ExternalModel{.drain = 2s}});
  }
  return configuration;
}

struct Engines : test::Bench {
  Engines() : Bench(two_engines(), Instant(100 * kWindow)) {}

  /// Carries out what the core wants; what takes time is said later.
  void act() {
    for (; seen < said.size(); ++seen) {
      const ManagerCommand command = said[seen];
      if (const auto* wake = std::get_if<WakeAt>(&command)) {
        wake_at = wake->at;
      } else if (const auto* load = std::get_if<LoadOn>(&command)) {
        EXPECT_TRUE(running.empty()) << "there is room for one";
        running.insert(load->model);
        const Duration takes = standing_by.erase(load->model) > 0 ? kResume : kStart;
        coming.emplace(now + takes, std::pair(load->model, EngineNews::kServing));
      } else if (const auto* evict = std::get_if<EvictFrom>(&command)) {
        coming.emplace(now + kSuspend, std::pair(evict->model, EngineNews::kSuspended));
      } else if (const auto* fail = std::get_if<FailRequest>(&command)) {
        ADD_FAILURE() << fail->error.message;
      }
    }
  }
  void pass(Duration time) {
    const Instant end = now + time;
    for (;;) {
      act();
      Instant next = wake_at ? std::min(end, *wake_at) : end;
      next = coming.empty() ? next : std::min(next, coming.begin()->first);
      now = std::max(now, next);
      if (!coming.empty() && coming.begin()->first <= now) {
        const auto [model, news] = coming.extract(coming.begin()).mapped();
        if (news == EngineNews::kSuspended) {
          running.erase(model);
          standing_by.insert(model);
        }
        tell(EngineSaid{.device = kDevice,
                        .model = model,
                        .news = news,
                        .held_pages = news == EngineNews::kServing ? kPages : 0,
                        .swap_out = kSuspend,
                        .swap_in = kResume});
      } else if (wake_at && *wake_at <= now) {
        wake_at.reset();
        tell(Tick{});
      } else if (now >= end) {
        return;
      }
    }
  }
  void ask_for(ModelId model, Duration time) {
    const RequestId id = arrive(model);
    pass(time);
    finish(id);
    act();
  }
  /// a is asked for in the first window of each day, b in the third, for a third of a window.
  void live(int days) {
    for (int i = 0; i < days * kWindowsPerDay; ++i) {
      next_window();
      const std::int64_t hour = window() % kWindowsPerDay;
      if (hour == 0 || hour == 2) {
        ask_for(hour == 0 ? kA : kB, kWindow / 3);
      }
    }
  }
  [[nodiscard]] std::int64_t window() const { return now.time_since_epoch() / kWindow; }
  [[nodiscard]] Duration to_next_window() const { return Instant(kWindow * (window() + 1)) - now; }
  void next_window() { pass(to_next_window()); }
  /// So long before the next window of this time of day.
  void until(std::int64_t hour, Duration before) {
    while ((window() + 1) % kWindowsPerDay != hour) {
      next_window();
    }
    pass(to_next_window() - before);
  }
  [[nodiscard]] bool serves(ModelId model) const {
    const Residency now_is = status(model).residency;
    return now_is == Residency::kServing || now_is == Residency::kWarm;
  }

  std::size_t seen = 0;
  std::set<ModelId> running{};
  std::set<ModelId> standing_by{};
  std::multimap<Instant, std::pair<ModelId, EngineNews>> coming{};
};

TEST(ExpectedEngines, EachIsThereWhenItsWindowBegins) {
  Engines bench;
  bench.live(6);
  const std::uint64_t misses = bench.starts(kA, StartKind::kMiss);
  const std::uint64_t forecast = bench.loaded(kA, LoadReason::kForecast);
  bench.until(0, 10s);
  EXPECT_FALSE(bench.serves(kA)) << "what has nine seconds is not hurried";
  bench.pass(9900ms);
  EXPECT_TRUE(bench.serves(kA));
  EXPECT_EQ(bench.loaded(kA, LoadReason::kForecast), forecast + 1);
  bench.next_window();
  const std::uint64_t hits = bench.starts(kA, StartKind::kHit);
  bench.ask_for(kA, 100ms);
  EXPECT_EQ(bench.starts(kA, StartKind::kHit), hits + 1);
  EXPECT_EQ(bench.starts(kA, StartKind::kMiss), misses);
  bench.until(2, 100ms);
  EXPECT_TRUE(bench.serves(kB));
  const auto why = bench.decisions(DecisionKind::kPrewarm);
  ASSERT_FALSE(why.empty());
  EXPECT_EQ(why.back().model, kB);
  EXPECT_NE(why.back().why.find("it stood by"), std::string::npos) << why.back().why;
  EXPECT_EQ(bench.status(kA).demand.wasted_bytes, 0U);
}

TEST(ExpectedEngines, WithoutAPastTheyOnlyComeWhenTheyAreAskedFor) {
  Engines bench;
  bench.live(1);
  for (const ModelId model : {kA, kB}) {
    EXPECT_EQ(bench.loaded(model, LoadReason::kForecast), 0U);
    EXPECT_EQ(bench.starts(model, StartKind::kMiss), 1U);
  }
}

TEST(ExpectedEngines, OneThatNobodyAskedForWasWasted) {
  Engines bench;
  bench.live(6);
  bench.until(0, 100ms);
  ASSERT_TRUE(bench.serves(kA));
  bench.pass(2s);
  bench.ask_for(kB, 5s);
  EXPECT_TRUE(bench.serves(kB));
  EXPECT_EQ(bench.status(kA).demand.wasted_bytes, kPages * kPageBytes);
}

TEST(ExpectedEngines, WhatAnEarlierManagerMeasuredStartsOneThatNeverRan) {
  Engines bench;
  LoadRemembered remembered{.model = kB};
  for (std::int64_t window = bench.window() - 20; window < bench.window(); ++window) {
    const bool asked = window % kWindowsPerDay == 2;
    remembered.windows.push_back(
        {window, asked ? policy::Load{.mean = 0.5, .peak = 1} : policy::Load{}});
  }
  bench.tell(remembered);
  bench.until(2, 100ms);
  EXPECT_TRUE(bench.serves(kB)) << "though it is not known yet what a start takes";
  EXPECT_EQ(bench.loaded(kB, LoadReason::kForecast), 1U);
  EXPECT_FALSE(bench.serves(kA));
}

TEST(ExpectedEngines, OneThatMayNotBeIdleForLongIsBackForItsNextWindow) {
  Engines bench;
  bench.live(6);
  bench.until(1, 10s);
  ASSERT_TRUE(bench.serves(kA));
  bench.tell(AdminUnload{.ticket = TicketId(1), .model = kA, .why = EvictionReason::kIdle});
  bench.pass(5s);
  EXPECT_FALSE(bench.serves(kA));
  bench.until(0, 100ms);
  EXPECT_TRUE(bench.serves(kA));
  EXPECT_GE(bench.status(kA).last_used, bench.now - 10s) << "how long it may be idle counts anew";
}

}  // namespace
}  // namespace heddle::core
