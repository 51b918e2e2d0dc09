// Prewarming of external engines, beside each other and beside models of our own.

#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kEnginePages;
using test::kOther;
using test::kPageBytes;
using test::Spots;
using test::TestState;

constexpr ModelId kRival{7};  ///< Another engine.
const PlannerOptions kLooksAhead{.prewarm = true, .value = true};

/// An engine of 12 pages on devices of 20, expected to be asked for in every window. It takes four
/// seconds to start and two to come back; every wait counts in full.
struct ExpectedEngine : TestState {
  explicit ExpectedEngine(int count = 1, PlannerOptions planner = kLooksAhead)
      : TestState(count, planner) {
    add_engine();
    expect(kEngine);
    know(kEngine, 2s);
    model(kEngine).load_times[0] = 4s;
  }

  void expect(ModelId id, policy::Load load = {.mean = 0.5, .peak = 1}) {
    LoadRemembered remembered{.model = id};
    for (std::int64_t window = 0; window < 10; ++window) {
      remembered.windows.emplace_back(window, load);
    }
    demand.remember(remembered);
  }
  void know(ModelId id, Duration swap_in, Duration swap_out = {}) {
    model(id).config.slo.ttft = 1ms;
    model(id).swap_in = swap_in;
    model(id).swap_out = swap_out;
  }
  /// Another engine of as many pages, which is there and idle; `back` is what its return takes.
  void add_rival(Duration back, Duration out = 100ms) {
    ManagerModel rival = configuration.models.back();
    rival.id = kRival;
    rival.name = "rival";
    configuration.models.push_back(rival);
    configure();
    know(kEngine, 2s);  // That was of the configuration, too.
    serve(kRival);
    know(kRival, back, out);
    pass(3s);  // Nobody has asked for it a moment ago.
  }
  void prewarm_again() {
    pass(state.options.planner.period);
    loading.looks();
    prewarm(parts);
  }
};

TEST(PrewarmEngine, OneThatIsExpectedIsStartedBeforeAnybodyAsks) {
  ExpectedEngine core;
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}}));
  EXPECT_EQ(core.at(kEngine).why, LoadReason::kForecast);
  const auto why = core.decisions(DecisionKind::kPrewarm);
  ASSERT_EQ(why.size(), 1U);
  EXPECT_NE(why[0].why.find("it is started"), std::string::npos) << why[0].why;
  core.serve(kEngine);
  core.wait(kEngine);
  EXPECT_EQ(core.model(kEngine).starts[static_cast<std::size_t>(StartKind::kHit)], 1U);
}

TEST(PrewarmEngine, OneOfWhichNothingIsKnownStaysAway) {
  TestState core(1, kLooksAhead);
  core.add_engine();
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(PrewarmEngine, OneThatStandsByComesBackThereAndNeedsOnlyWhatItLacks) {
  ExpectedEngine core(2);
  core.configuration.models.back().footprints[kOther] = {.image_pages = kEnginePages};
  core.configure();
  core.serve(kEngine, kOther);
  core.at(kEngine, kOther).used = true;
  core.residency.suspend(kOther, kEngine, 8);
  core.serve(kA, kOther);  // Beside the 8 pages that it kept and the 9 of this, 3 are free.
  core.run(kA, kOther);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty()) << "it lacks 4, and comes back nowhere else";
  core.finish(*core.at(kA, kOther).in_flight.begin());
  core.residency.lose(kOther, kA);
  core.prewarm_again();
  EXPECT_EQ(core.loads(), (Spots{{kOther, kEngine}}));
  EXPECT_EQ(core.at(kEngine, kOther).why, LoadReason::kForecast);
  EXPECT_FALSE(core.at(kEngine, kOther).used);
  const auto why = core.decisions(DecisionKind::kPrewarm);
  ASSERT_EQ(why.size(), 1U);
  EXPECT_NE(why[0].why.find("it stood by"), std::string::npos) << why[0].why;
}

TEST(PrewarmEngine, ItIsAtOnePlaceHoweverMuchIsExpected) {
  ExpectedEngine core(2);
  core.configuration.models.back().footprints[kOther] = {.image_pages = kEnginePages};
  core.configure();
  core.expect(kEngine, {.mean = 20, .peak = 40});
  prewarm(core.parts);
  ASSERT_EQ(core.loads().size(), 1U);
  core.serve(kEngine);
  core.pass(10 * core.state.options.planner.period);
  core.prewarm_again();
  EXPECT_TRUE(core.loads().empty());
}

TEST(PrewarmEngine, AnIdleEngineThatIsWorthLessLeavesFirst) {
  ExpectedEngine core;
  core.add_rival(1s);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kRival}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kWhenIdle);
  EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, 4) << "12 are wanted and 8 are free";
  EXPECT_TRUE(core.loads().empty()) << "its memory is not free yet";
  EXPECT_TRUE(core.loading.unfinished());
  core.commands.clear();
  core.prewarm_again();
  EXPECT_TRUE(core.commands.empty()) << "it is on its way out";
  EXPECT_TRUE(core.loading.unfinished());
  core.residency.suspend(kDevice, kRival, 3);
  core.prewarm_again();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}}));
}

TEST(PrewarmEngine, WhereOneLeavesItIsLookedAgainThoughNothingLacks) {
  TestState core(1, kLooksAhead);
  core.add_engine();
  core.serve(kEngine);
  prewarm(core.parts);
  EXPECT_FALSE(core.loading.unfinished());
  core.residency.evict(kDevice, kEngine, EvictMode::kWhenIdle, EvictionReason::kDisplaced);
  prewarm(core.parts);
  EXPECT_TRUE(core.loading.unfinished());
}

TEST(PrewarmEngine, AnIdleEngineThatIsWorthMoreStays) {
  ExpectedEngine core;
  core.add_rival(30s);
  core.expect(kRival);
  prewarm(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.loads().empty());
}

// Whoever misses waits until it has left as well, so that most of that is gained again.
TEST(PrewarmEngine, WhatTakesLongToLeaveLeavesIfLittleOfThatIsInVain) {
  for (const Duration out : {Duration(5s), Duration(60s)}) {
    ExpectedEngine core;
    core.add_rival(1s, out);
    prewarm(core.parts);
    EXPECT_EQ(core.evictions(), out == 5s ? (Spots{{kDevice, kRival}}) : Spots{});
  }
}

TEST(PrewarmEngine, WhatIsPinnedOrBusyOrCameJustNowStays) {
  ExpectedEngine pinned;
  pinned.add_rival(1s);
  pinned.model(kRival).config.pin = true;
  prewarm(pinned.parts);
  EXPECT_TRUE(pinned.evictions().empty());

  ExpectedEngine busy;
  busy.add_rival(1s);
  busy.run(kRival);
  prewarm(busy.parts);
  EXPECT_TRUE(busy.evictions().empty());

  ExpectedEngine fresh;
  fresh.add_rival(20s);
  fresh.model(kEngine).load_times[0] = 100s;
  fresh.finish(fresh.run(kRival));
  fresh.pass(3s);  // No longer in use, but its stay of half of what its return takes is not over.
  prewarm(fresh.parts);
  EXPECT_TRUE(fresh.evictions().empty());
  fresh.pass(10s);
  prewarm(fresh.parts);
  EXPECT_EQ(fresh.evictions(), (Spots{{kDevice, kRival}}));
}

TEST(PrewarmEngine, AnEngineThatIsAskedForAgainAndAgainStaysUntilThatIsOver) {
  ExpectedEngine core;
  core.add_rival(1s);
  for (int i = 0; i < 10; ++i) {
    core.finish(core.run(kRival));
    core.pass(1s);
  }
  core.pass(1500ms);  // It is no longer in use, but three of its gaps are not over.
  prewarm(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  core.pass(3s);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kRival}}));
}

TEST(PrewarmEngine, WhatItDisplacesLeavesWhateverRoomThereIs) {
  ExpectedEngine core;
  core.add_rival(1s);
  for (ManagerModel& model : core.configuration.models) {
    if (model.external) {
      model.footprints[kDevice].image_pages = 0;  // As where nobody says what engines need.
    }
    if (model.id == kEngine) {
      model.displaces = {kRival};
    }
  }
  core.configure();
  core.residency.hold_pages(kDevice, kRival, 0);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kRival}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, 0) << "it only must not run";
  EXPECT_TRUE(core.loads().empty());
  core.residency.suspend(kDevice, kRival, 0);
  core.prewarm_again();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}}));
}

TEST(PrewarmEngine, AModelOfOursMakesWayForItAndItForAModelOfOurs) {
  ExpectedEngine core;
  core.serve(kA);
  core.model(kA).load_times[0] = 10ms;
  core.pass(3s);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}})) << "the worker keeps the order";

  TestState own(1, kLooksAhead);
  own.add_engine();
  own.serve(kEngine);
  own.model(kEngine).config.slo.ttft = own.model(kA).config.slo.ttft = 1ms;
  own.model(kEngine).swap_in = 1s;
  own.pass(3s);
  LoadRemembered remembered{.model = kA};
  for (std::int64_t window = 0; window < 10; ++window) {
    remembered.windows.emplace_back(window, policy::Load{.mean = 0.5, .peak = 1});
  }
  own.demand.remember(remembered);
  own.model(kA).load_times[0] = 4s;
  prewarm(own.parts);
  EXPECT_EQ(own.evictions(), (Spots{{kDevice, kEngine}}));
  EXPECT_EQ(own.all<EvictFrom>()[0].free_pages, 1) << "9 are wanted and 8 are free";
  own.residency.suspend(kDevice, kEngine, 0);
  own.pass(own.state.options.planner.period);
  prewarm(own.parts);
  EXPECT_EQ(own.loads(), (Spots{{kDevice, kA}}));
}

TEST(PrewarmEngine, WhereValuesAreLeftOutTheOneUsedLongestAgoLeaves) {
  ExpectedEngine core(1, {.prewarm = true});
  core.add_rival(30s);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kRival}}));
}

TEST(PrewarmEngine, WhatRequestsWantIsTheirBusiness) {
  ExpectedEngine core;
  core.wait(kEngine);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(PrewarmEngine, WhatWasIdleForTooLongStaysAwayForThatWindow) {
  ExpectedEngine core;
  core.tickets.ask(
      AdminUnload{.ticket = TicketId(1), .model = kEngine, .why = EvictionReason::kIdle});
  core.tickets.answer();
  core.pass(1s);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
  core.pass(4s);  // The next window begins in five seconds, and it takes 4.5 to be there.
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
  core.pass(500ms);
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}}));
}

TEST(PrewarmEngine, WhatCameForNobodyIsCountedWhenItIsSuspended) {
  ExpectedEngine core;
  prewarm(core.parts);
  core.serve(kEngine);
  core.residency.evict(kDevice, kEngine, EvictMode::kWhenIdle, EvictionReason::kDisplaced);
  core.residency.suspend(kDevice, kEngine, 3);
  EXPECT_EQ(core.model(kEngine).wasted_bytes, kEnginePages * kPageBytes);
  core.residency.lose(kDevice, kEngine);
  EXPECT_EQ(core.model(kEngine).wasted_bytes, kEnginePages * kPageBytes) << "once";
}

}  // namespace
}  // namespace heddle::core::manager
