#include "twin/wire.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

/// A way of 1 ms, and a connection over it whose ends note what they hear.
struct Ends {
  ClusterTimes times{.hop = 1ms, .silence = 100ms};
  Agenda agenda{};
  Faults faults{FaultPlan{.seed = 7, .late = {.hop = 3ms}}};
  Path path{times, agenda, faults};
  std::vector<std::uint64_t> heard{};  ///< By the callee.
  std::vector<Side> closed{};          ///< That noticed it.
  std::shared_ptr<Wire> wire = connect();

  std::shared_ptr<Wire> connect() {
    const std::shared_ptr<Wire> made = path.connect();
    for (const Side side : {Side::kCaller, Side::kCallee}) {
      made->start(
          side,
          {.on_message =
               [this](const Message& message) { heard.push_back(std::get<Lead>(message).term); },
           .on_closed = [this, side] { closed.push_back(side); }});
    }
    return made;
  }
  void say(std::uint64_t number) { wire->send(Side::kCaller, Lead{.term = number}); }
  void run() {
    while (agenda.advance()) {
    }
  }
  void wait(Duration time) {
    bool over = false;
    agenda.after(time, [&over] { over = true; });
    while (!over) {
      agenda.advance();
    }
  }
};

TEST(Wire, WhatIsSentComesInOrderAndTakesItsTime) {
  Ends ends;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    ends.say(i);
    ends.wait(500us);
  }
  ends.run();
  ASSERT_EQ(ends.heard.size(), 20U);
  EXPECT_TRUE(std::is_sorted(ends.heard.begin(), ends.heard.end()));
  EXPECT_GE(ends.agenda.now(), Instant(10ms + 500us));
  EXPECT_TRUE(ends.closed.empty());
}

TEST(Wire, WhoeverClosesHearsNothingAndTheOtherHearsAllThatWasSentBefore) {
  Ends ends;
  ends.say(1);
  ends.wire->close(Side::kCaller);
  ends.say(2);
  ends.wire->send(Side::kCallee, Lead{.term = 3});
  ends.run();
  EXPECT_EQ(ends.heard, std::vector<std::uint64_t>{1});
  EXPECT_EQ(ends.closed, std::vector<Side>{Side::kCallee});
  EXPECT_FALSE(ends.wire->open(Side::kCallee));
}

TEST(Wire, AShortCutIsOnlyADelay) {
  Ends ends;
  ends.times.silence = 1000s;
  ends.path.cut(Side::kCaller, 5ms);
  ends.say(1);
  ends.wait(4ms);
  EXPECT_TRUE(ends.heard.empty());
  EXPECT_FALSE(ends.path.clear());
  ends.say(2);
  ends.wait(2ms);
  ends.say(3);
  ends.wait(50ms);
  EXPECT_EQ(ends.heard, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(ends.path.clear());
  EXPECT_TRUE(ends.closed.empty());
}

TEST(Wire, OfALongOneWayCutTheDeafEndTellsTheOther) {
  Ends ends;
  ends.path.cut(Side::kCaller, 1s);
  ends.say(1);
  ends.run();
  EXPECT_TRUE(ends.heard.empty()) << "it comes too late";
  EXPECT_EQ(ends.closed, (std::vector<Side>{Side::kCallee, Side::kCaller}));
}

TEST(Wire, AnEndThatLosesItsConnectionLeavesTheOtherInTheDark) {
  Ends ends;
  ends.path.reset(Side::kCaller);
  EXPECT_EQ(ends.closed, std::vector<Side>{Side::kCaller});
  EXPECT_TRUE(ends.wire->open(Side::kCallee));
  const std::shared_ptr<Wire> next = ends.connect();
  ends.run();
  EXPECT_EQ(ends.closed, (std::vector<Side>{Side::kCaller, Side::kCallee}));
  EXPECT_TRUE(next->open(Side::kCaller) && next->open(Side::kCallee));
}

TEST(Wire, OfAProcessThatFallsTheOtherHearsNowOrAfterASilence) {
  for (const bool silent : {false, true}) {
    Ends ends;
    ends.path.fall(Side::kCallee, silent);
    ends.run();
    EXPECT_EQ(ends.closed, std::vector<Side>{Side::kCaller});
    EXPECT_FALSE(ends.wire->open(Side::kCallee));
  }
}

}  // namespace
}  // namespace heddle::twin
