#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kEngine;
using test::kEnginePages;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::Spots;
using test::TestState;

constexpr DeviceId kThird{2};
constexpr DeviceId kFourth{3};

void preload(TestState& core, ModelId model) {
  core.tickets.ask(AdminLoad{.ticket = TicketId(model.value()), .model = model});
}

/// A device that two models fill.
struct Full : TestState {
  explicit Full(int count = 1) : TestState(count) {
    serve(kA);
    serve(kB);
  }
};

// ---- Who is placed ----

TEST(Place, WhoHasWaitedLongestGoesFirst) {
  TestState core;
  core.wait(kB);
  core.pass(1ms);
  core.wait(kA);
  core.pass(1ms);
  core.wait(kC);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kB}, {kDevice, kA}}));
}

TEST(Place, AnOperatorsWaitCountsLikeARequests) {
  TestState core;
  preload(core, kC);
  core.pass(1ms);
  core.wait(kA);
  core.wait(kB);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kC}, {kDevice, kA}}));
  EXPECT_EQ(core.at(kC).why, LoadReason::kOperator);
}

TEST(Place, RequestsThatStandStillWithTheirEngineWaitSinceTheyArrived) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.run(kEngine);
  core.residency.suspend(kDevice, kEngine, 0);
  core.model(kEngine).frozen = 1;
  core.pass(1ms);
  core.wait(kA);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}})) << "beside it there is no room";
}

TEST(Place, AModelThatComesOrServesIsNotBroughtInAgain) {
  TestState core(2);
  core.serve(kA);
  core.load(kB);
  core.commands.clear();
  core.wait(kA);
  core.wait(kB);
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Place, AModelThatADeviceIsClearedForIsNotBroughtInElsewhere) {
  Full core(2);
  core.run(kA);
  core.wait(kC);
  core.plans.begin(kDevice, kC, {kA});
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Place, AModelThatLeavesOneDeviceIsBroughtInOnAnother) {
  for (const bool drained : {true, false}) {
    TestState core(2);
    core.serve(kA);
    if (drained) {
      core.run(kA);
      core.residency.drain(kDevice, kA);
    } else {
      core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle);
    }
    core.wait(kA);
    place(core.parts);
    EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  }
}

TEST(Place, AnEngineThatLeavesHasToHaveLeft) {
  TestState core(2);
  core.add_engine();
  set_need(core, kEngine, kOther, {.image_pages = kEnginePages});
  core.serve(kEngine);
  core.residency.evict(kDevice, kEngine, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.wait(kEngine);
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
  core.residency.suspend(kDevice, kEngine, 0);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kEngine}}));
}

TEST(Place, WhereModelsDoNotShareOneThatMayNotRunIsPlacedElsewhere) {
  TestState core(2);
  core.state.options.planner.share = false;
  core.serve(kA);
  core.serve(kB);
  core.run(kB);
  core.wait(kA);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(Place, AModelWhoseLoadFailedIsTriedWhenItsPauseIsOver) {
  TestState core;
  core.wait(kA);
  core.attempts.failed(kA, {Code::kUnavailable, "disk"});
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
  const Instant retry_at = core.model(kA).retry_at;
  EXPECT_EQ(core.wake(), retry_at);
  core.state.now = retry_at;
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

TEST(Place, ADeviceThatRestsIsLookedAtAgainWhenItHas) {
  TestState core;
  core.devices.pause(kDevice, core.state.now + 3s);
  core.wait(kA);
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_EQ(core.wake(), core.state.now + 3s);
}

// ---- What is loaded for no request ----

/// The second of two devices has not started yet.
struct HalfUp : TestState {
  HalfUp() : TestState(2) {
    devices.down(kOther);
    device(kOther).epoch = {};
  }
};

TEST(Place, WhatAnOperatorWantsWaitsUntilAllItsDevicesHaveStarted) {
  HalfUp core;
  preload(core, kA);
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_EQ(core.wake(), core.state.began + 10s);
  core.devices.up({.device = kOther, .epoch = WorkerEpoch(1)});
  place(core.parts);
  EXPECT_EQ(core.loads().size(), 1U);
}

TEST(Place, NoModelWaitsLongForADeviceThatDoesNotStart) {
  HalfUp core;
  preload(core, kA);
  core.pass(10s);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

TEST(Place, ARequestDoesNotWaitForDevices) {
  HalfUp core;
  preload(core, kA);
  core.wait(kA);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

// ---- Who makes room ----

TEST(Place, AnIdleModelMakesRoomAtOnce) {
  Full core;
  core.wait(kC);
  place(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kC}}));
  EXPECT_FALSE(core.device().plan);
}

TEST(Place, ABusyModelMakesRoomWhenTheRequestHasWaitedAndIsDrainedFirst) {
  Full core;
  core.run(kA);
  core.run(kB);
  core.run(kB);
  core.wait(kC);
  place(core.parts);
  EXPECT_FALSE(core.device().plan);
  EXPECT_EQ(core.wake(), core.state.now + core.state.options.drain_after);
  core.pass(core.state.options.drain_after);
  place(core.parts);
  ASSERT_TRUE(core.device().plan);
  EXPECT_EQ(core.device().plan->victims, std::vector{kA});
  EXPECT_TRUE(core.at(kA).is<Draining>());
  EXPECT_TRUE(core.loads().empty());
}

TEST(Place, AnEngineIsOutBeforeAModelTakesItsPlace) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.wait(kA);
  place(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kEngine}}));
  EXPECT_TRUE(core.loads().empty());
  ASSERT_TRUE(core.device().plan);
  EXPECT_EQ(core.device().plan->model, kA);
}

TEST(Place, AnIdleGroupIsOutBeforeAModelTakesItsPlace) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.wait(kA);
  place(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_TRUE(core.loads().empty());
}

TEST(Place, AStagedShardMakesRoomAtOnce) {
  TestState core(2);
  core.add_group();
  core.devices.down(kOther);
  core.stage(kGroup);
  core.serve(kA);
  core.run(kA);
  core.wait(kB);
  place(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kB}}));
}

TEST(Place, WhyAModelWaitsIsSaidWhenItChanges) {
  Full core;
  core.run(kA);
  core.run(kB);
  core.wait(kC);
  place(core.parts);
  place(core.parts);
  EXPECT_EQ(core.decisions(DecisionKind::kWait).size(), 1U);
  EXPECT_EQ(core.model(kC).waits_for, policy::PlacementReason::kFairness);
  core.model(kA).config.min_residence = core.model(kB).config.min_residence = 1h;
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(core.decisions(DecisionKind::kWait).size(), 2U);
  EXPECT_EQ(core.model(kC).waits_for, policy::PlacementReason::kResidence);
  core.model(kA).config.min_residence = {};
  place(core.parts);
  EXPECT_FALSE(core.model(kC).waits_for);
  EXPECT_EQ(core.decisions(DecisionKind::kWait).size(), 2U);
}

// ---- Who cannot be had ----

TEST(Place, RequestsFailWherePinnedModelsLeaveTooLittle) {
  Full core;
  core.model(kA).config.pin = core.model(kB).config.pin = true;
  const RequestId id = core.wait(kC);
  preload(core, kC);
  place(core.parts);
  EXPECT_EQ(core.failed(), std::vector{id});
  ASSERT_EQ(core.all<AdminDone>().size(), 1U);
  EXPECT_TRUE(core.all<AdminDone>()[0].error);
  EXPECT_FALSE(core.model(kC).wanted());
}

TEST(Place, OfRequestsThatFitElsewhereOnlyTheLongFailAndTheShortAreServed) {
  TestState core(2);
  core.device().config.pages = 10;
  core.device(kOther).config.pages = 16;  // Room for a longer request, but for a pinned model.
  core.serve(kB, kOther);
  core.model(kB).config.pin = true;
  const RequestId too_long = core.wait(kA, 40);
  const RequestId fits = core.wait(kA, 16);
  place(core.parts);
  EXPECT_EQ(core.failed(), std::vector{too_long});
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
  EXPECT_TRUE(core.state.requests.contains(fits));
}

// ---- Sharded models ----

/// Four devices, two blocks of them, and a request for the sharded model.
struct Blocks : TestState {
  Blocks() : TestState(4) {
    add_group();
    wait(kGroup);
  }
  void busy(DeviceId device, ModelId model, int count) {
    serve(model, device);
    for (int i = 0; i < count; ++i) {
      run(model, device);
    }
  }
};

TEST(PlaceGroup, AShardedModelTakesABlockThatIsEmpty) {
  Blocks core;
  core.serve(kA);
  place(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kThird, kGroup}, {kFourth, kShard}}));
}

TEST(PlaceGroup, AShardedModelThatClaimsABlockIsNotPlacedAgain) {
  Blocks core;
  core.busy(kDevice, kA, 1);
  core.claims.claim(kGroup, kDevice);
  place(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_EQ(core.model(kGroup).claim.value().leader, kDevice);
}

TEST(PlaceGroup, AShardThatIsStagedIsNotTheModelUnderWay) {
  Blocks core;
  core.residency.begin_load(kDevice, kGroup, LoadReason::kForecast, {.staged = true});
  place(core.parts);
  EXPECT_FALSE(core.at(kGroup).staged());
}

TEST(PlaceGroup, ABusyBlockIsClaimedAndDrainedAfterThePatienceOfWhoWaits) {
  Blocks core;
  core.busy(kDevice, kA, 3);
  core.busy(kThird, kB, 2);
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(core.model(kGroup).claim.value().leader, kThird);
  EXPECT_TRUE(core.at(kB, kThird).is<Draining>());
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(PlaceGroup, AfterItsPatienceItClaimsTheBlockWithTheLeastToDoThoughThatIsNotToBeHad) {
  Blocks core;
  core.busy(kDevice, kA, 3);
  core.busy(kThird, kB, 2);
  core.model(kA).config.min_residence = core.model(kB).config.min_residence = 1h;
  place(core.parts);
  EXPECT_FALSE(core.model(kGroup).claim);
  EXPECT_EQ(core.wake(), core.state.now + core.state.options.drain_after);
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(core.model(kGroup).claim.value().leader, kThird);
}

TEST(PlaceGroup, ABlockToWhichSomethingIsOnItsWayIsClaimedAfterThePatienceToo) {
  TestState core(2);
  core.add_group();
  core.load(kA);
  core.commands.clear();
  core.wait(kGroup);
  place(core.parts);
  EXPECT_EQ(core.model(kGroup).waits_for, policy::PlacementReason::kTransition);
  EXPECT_EQ(core.wake(), core.state.now + core.state.options.drain_after);
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(core.model(kGroup).claim.value().leader, kDevice);
}

TEST(PlaceGroup, ABlockWithAnEngineIsNotClaimedBeforeItIsToBeHad) {
  Blocks core;
  core.add_engine();
  core.serve(kEngine);
  core.model(kEngine).config.min_residence = 1h;
  core.run(kEngine);
  core.busy(kThird, kB, 2);
  core.model(kB).config.min_residence = 1h;
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(core.model(kGroup).claim.value().leader, kThird);
}

TEST(PlaceGroup, ABlockThatAnotherClaimsOrThatIsDownIsNotClaimed) {
  Blocks core;
  core.busy(kDevice, kA, 3);
  core.busy(kThird, kB, 2);
  core.model(kA).config.min_residence = core.model(kB).config.min_residence = 1h;
  core.devices.down(kFourth);
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(core.model(kGroup).claim.value().leader, kDevice);
}

}  // namespace
}  // namespace heddle::core::manager
