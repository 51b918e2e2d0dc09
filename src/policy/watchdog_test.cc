#include "policy/watchdog.h"

#include <functional>

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 250ms;

/// A worker as its watcher sees it: what it does is said, and time passes tick by tick.
struct Watched {
  explicit Watched(bool ready = true) {
    if (ready) {
      dog.heard_hello();
    }
  }

  /// Lets time pass until something other than `fine` is said, for so long at most.
  Verdict pass(Duration time, Health until = Health::kHung) {
    Verdict said;
    for (const Instant end = now + time; now < end;) {
      now += kTick;
      signs.active += kTick * busy_percent / 100;
      if (beats) {
        dog.heard_beat(
            {{.name = "engine", .doing = doing, .progress = progress, .expected = expected}});
      }
      said = dog.judge(now, dog.wants_signs() ? std::optional(signs) : std::nullopt);
      looked = looked || dog.wants_signs();
      if (said.health >= until) {
        return said;
      }
    }
    return said;
  }
  [[nodiscard]] Duration since_start() const { return now - Instant(); }

  Instant now{};
  Watchdog dog{now};
  ProcessSigns signs{};
  int busy_percent = 0;  ///< Of a core, ran or waited for.
  bool beats = true;
  bool looked = false;
  Doing doing = Doing::kIdle;
  std::uint64_t progress = 0;
  Duration expected{};
};

TEST(Watchdog, AnIdleWorkerThatBeatsIsNeverLookedAt) {
  Watched worker;
  EXPECT_EQ(worker.pass(1h).health, Health::kFine);
  EXPECT_FALSE(worker.looked);
}

TEST(Watchdog, AStoppedWorkerHangsWithinTwoSeconds) {
  Watched worker;
  worker.pass(10s);
  const Instant stopped = worker.now;
  worker.beats = false;
  worker.signs.state = 'T';
  EXPECT_EQ(worker.pass(5s, Health::kSuspected).health, Health::kSuspected);
  EXPECT_LE(worker.now - stopped, 1250ms);
  const Verdict said = worker.pass(5s);
  EXPECT_EQ(said.health, Health::kHung);
  EXPECT_EQ(said.reason, HangReason::kStopped);
  EXPECT_LE(worker.now - stopped, 2s);
}

TEST(Watchdog, OneThatIsStoppedBrieflyIsFine) {
  Watched worker;
  for (int times = 0; times < 100; ++times) {
    worker.beats = false;
    worker.signs.state = 'T';
    EXPECT_EQ(worker.pass(500ms).health, Health::kFine);
    worker.beats = true;
    worker.signs.state = 'S';
    EXPECT_EQ(worker.pass(250ms).health, Health::kFine);
  }
}

TEST(Watchdog, OneThatWasStoppedAndGoesOnIsSuspectedAndThenFine) {
  Watched worker;
  worker.beats = false;
  worker.signs.state = 'T';
  EXPECT_EQ(worker.pass(1s).health, Health::kSuspected);
  worker.beats = true;
  worker.signs.state = 'R';
  EXPECT_EQ(worker.pass(250ms).health, Health::kFine);
}

TEST(Watchdog, ADebuggerIsNoHang) {
  for (const bool by_state : {true, false}) {
    Watched worker;
    worker.beats = false;
    worker.signs.state = by_state ? 't' : 'S';
    worker.signs.traced = !by_state;
    EXPECT_EQ(worker.pass(1s, Health::kTraced).health, Health::kTraced);
    for (int ticks = 0; ticks < 1000; ++ticks) {
      EXPECT_EQ(worker.pass(kTick).health, Health::kTraced) << "without a break, and never more";
    }
    worker.beats = true;
    worker.signs = {};
    EXPECT_EQ(worker.pass(10s).health, Health::kFine) << "and nothing is left of it";
  }
}

TEST(Watchdog, TimeInWhichTheWatcherDidNotRunDoesNotCount) {
  Watched worker;
  worker.pass(5s);
  worker.now += 1h;  // The server was stopped and continued, and its worker as well.
  worker.signs.state = 'T';
  worker.beats = false;
  EXPECT_EQ(worker.pass(kTick).health, Health::kFine);
  worker.signs.state = 'R';
  worker.beats = true;
  EXPECT_EQ(worker.pass(10s).health, Health::kFine);
}

TEST(Watchdog, SilenceUnderLoadIsBorneLongerThanSilenceAsleep) {
  struct Case {
    int busy_percent;
    char state;
    Duration from;
    Duration to;
  };
  for (const Case& each : {Case{0, 'S', 4s, 7s},
                           Case{100, 'R', 29s, 32s},
                           Case{10, 'S', 29s, 32s},
                           Case{0, 'D', 29s, 32s}}) {
    Watched worker;
    worker.beats = false;
    worker.busy_percent = each.busy_percent;
    worker.signs.state = each.state;
    const Verdict said = worker.pass(1h);
    EXPECT_EQ(said.reason, HangReason::kSilent);
    EXPECT_GE(worker.since_start(), each.from) << each.state;
    EXPECT_LE(worker.since_start(), each.to) << each.state;
  }
}

TEST(Watchdog, AStarvedWorkerIsNotSuspectedAtOnce) {
  Watched worker;
  worker.beats = false;
  worker.busy_percent = 100;
  EXPECT_EQ(worker.pass(4s).health, Health::kFine);
}

TEST(Watchdog, AStartMayTakeLongWhileItDoesSomething) {
  Watched worker(false);
  worker.beats = false;
  EXPECT_EQ(worker.pass(59s).health, Health::kFine);
  EXPECT_EQ(worker.pass(2s).reason, HangReason::kStart);
  Watched busy(false);
  busy.beats = false;
  busy.busy_percent = 50;
  EXPECT_EQ(busy.pass(590s).health, Health::kFine);
  EXPECT_EQ(busy.pass(20s).reason, HangReason::kStart);
  Watched stopped(false);
  stopped.beats = false;
  stopped.signs.state = 'T';
  EXPECT_EQ(stopped.pass(3s).reason, HangReason::kStopped);
}

TEST(Watchdog, AThreadHangsByWhatItDoesAndWhatThatTakes) {
  struct Case {
    const char* what;
    Doing doing;
    Duration expected;
    int busy_percent;
    Duration from;
    Duration to;
  };
  for (const Case& each : {
           Case{"a step that sleeps", Doing::kStep, 10ms, 0, 9s, 12s},
           Case{"one that is slow by its pace", Doing::kStep, 2s, 0, 39s, 42s},
           Case{"an endless loop", Doing::kStep, 10ms, 100, 59s, 62s},
           Case{"a long prefill", Doing::kStep, 2s, 100, 199s, 202s},
           Case{"a rank that waits for others", Doing::kGroupStep, 10ms, 0, 599s, 602s},
           Case{"a rank that loops", Doing::kGroupStep, 10ms, 100, 59s, 62s},
           Case{"weights that do not come", Doing::kWeights, 10ms, 0, 599s, 602s},
           Case{"a copy", Doing::kCopy, {}, 0, 29s, 32s},
           Case{"messages", Doing::kWork, {}, 0, 29s, 32s},
       }) {
    Watched worker;
    worker.doing = each.doing;
    worker.expected = each.expected;
    worker.busy_percent = each.busy_percent;
    const Verdict said = worker.pass(2h);
    EXPECT_EQ(said.health, Health::kHung) << each.what;
    EXPECT_EQ(said.reason, HangReason::kStuck) << each.what;
    EXPECT_GE(worker.since_start(), each.from) << each.what;
    EXPECT_LE(worker.since_start(), each.to) << each.what;
  }
}

TEST(Watchdog, AStepThatSleepsIsSuspectedAfterTwoSeconds) {
  Watched worker;
  worker.doing = Doing::kStep;
  const Verdict said = worker.pass(1h, Health::kSuspected);
  EXPECT_EQ(said.health, Health::kSuspected);
  EXPECT_LE(worker.since_start(), 3s);
  EXPECT_NE(said.why.find("its engine thread has been in a step for 2."), std::string::npos)
      << said.why;
}

TEST(Watchdog, ProgressIsNoHang) {
  Watched worker;
  worker.doing = Doing::kCopy;
  for (int i = 0; i < 1000; ++i) {
    ++worker.progress;  // A slow disk: a piece now and then.
    EXPECT_NE(worker.pass(20s).health, Health::kHung);
  }
}

}  // namespace
}  // namespace heddle::policy
