#include "policy/engine_watchdog.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

/// An engine as its watcher sees it, once a second.
struct Watched {
  Verdict pass(Duration time) {
    Verdict said;
    for (const Instant end = now + time; now < end;) {
      now += 1s;
      signs.ran += 1s * busy_percent / 100;
      said = dog.look(now, signs);
      if (said.health == Health::kHung) {
        return said;
      }
      if (dog.wants_probe()) {
        ++probes;
        now += answers ? 0s : EngineWatchdog::kProbePatience;
        dog.probed(answers);
      }
    }
    return said;
  }

  Instant now{100s};
  EngineWatchdog dog{now};
  EngineSigns signs{};
  int busy_percent = 0;
  bool answers = true;
  int probes = 0;
};

TEST(EngineWatchdog, AnEngineWithoutRequestsIsNotAsked) {
  Watched engine;
  engine.answers = false;
  EXPECT_EQ(engine.pass(1h).health, Health::kFine);
  EXPECT_EQ(engine.probes, 0);
}

TEST(EngineWatchdog, OneThatAnswersIsLeftAloneHoweverLongItsRequestsWait) {
  Watched engine;
  engine.signs.silent_since = engine.now;
  EXPECT_EQ(engine.pass(1h).health, Health::kFine);
  EXPECT_GT(engine.probes, 100);
  EXPECT_LT(engine.probes, 400) << "not more often than needed";
}

TEST(EngineWatchdog, OneThatIsSilentAndDoesNothingHangs) {
  Watched engine;
  engine.answers = false;
  engine.signs.silent_since = engine.now;
  const Instant asked = engine.now;
  const Verdict said = engine.pass(5min);
  EXPECT_EQ(said.health, Health::kHung);
  EXPECT_EQ(said.reason, HangReason::kSilent);
  EXPECT_GE(engine.now - asked, 20s);
  EXPECT_LE(engine.now - asked, 30s);
}

TEST(EngineWatchdog, OneThatComputesIsSuspectedAndLeftAlone) {
  Watched engine;
  engine.answers = false;
  engine.busy_percent = 100;
  engine.signs.silent_since = engine.now;
  EXPECT_EQ(engine.pass(1h).health, Health::kSuspected);
  engine.signs.silent_since = engine.now;  // A byte came.
  EXPECT_EQ(engine.pass(1s).health, Health::kFine);
}

TEST(EngineWatchdog, OneThatASignalStoppedHangsAfterTwoSecondsThatWereWatched) {
  Watched engine;
  engine.signs.stopped = true;
  engine.now += 1h;  // The server was stopped as well.
  EXPECT_EQ(engine.pass(1s).health, Health::kFine);
  EXPECT_EQ(engine.pass(1s).health, Health::kSuspected);
  engine.signs.stopped = false;
  EXPECT_EQ(engine.pass(1s).health, Health::kFine);
  engine.signs.stopped = true;
  EXPECT_EQ(engine.pass(4s).reason, HangReason::kStopped);
  engine.dog.excuse(engine.now);
  EXPECT_EQ(engine.pass(2s).health, Health::kSuspected) << "from anew";
}

}  // namespace
}  // namespace heddle::policy
