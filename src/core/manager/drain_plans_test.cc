#include "core/manager/drain_plans.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"
#include "core/manager/views.h"

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

/// Two models fill the device, a with a request. A request waits for c.
struct Full : TestState {
  explicit Full(int count = 1) : TestState(count) {
    serve(kA);
    serve(kB);
    request = run(kA);
    waits = wait(kC);
    commands.clear();
  }
  RequestId request{};
  RequestId waits{};
};

TEST(DrainPlans, VictimsAreSentNothingMoreAndTheModelComesWhenTheyAreIdle) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  EXPECT_TRUE(core.at(kA).is<Draining>());
  EXPECT_TRUE(core.at(kB).is<Serving>());
  core.plans.advance();
  EXPECT_TRUE(core.loads().empty()) << "its request runs";
  core.finish(core.request);
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kC}}));
  EXPECT_FALSE(core.device().plan);
}

TEST(DrainPlans, ABusyModelGoesWithItsRequestsOnceItsTurnIsOver) {
  Full core;
  core.state.options.turn = 3s;
  core.plans.begin(kDevice, kC, {kA});
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty()) << "it has begun";
  core.state.now += 3s;
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kTurn);
  EXPECT_EQ(core.state.models.at(kA).turn_ended, core.state.now);
  core.plans.advance();
  EXPECT_EQ(core.evictions().size(), 1U) << "it is on its way out";
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kC}}));
}

TEST(DrainPlans, AVictimThatAReloadHasRemovedMeanwhileIsPassedOver) {
  Full core;
  core.configuration.options.turn = 3s;
  core.run(kB);
  core.plans.begin(kDevice, kC, {kA, kB});
  core.residency.forget(kDevice, kA);
  core.resize(kDevice, 14);
  core.remove(kA);
  core.state.now += 3s;
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
}

TEST(DrainPlans, WithoutTurnsABusyModelIsWaitedFor) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  core.state.now += 1h;
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty());
}

TEST(DrainPlans, APlanThatNobodyWantsAnyMoreIsGivenUp) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  core.queues.cancel(core.waits);
  core.plans.advance();
  EXPECT_FALSE(core.device().plan);
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(DrainPlans, APlanForAModelThatIsForgottenIsGivenUp) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  core.queues.cancel(core.waits);
  core.remove(kC);
  core.catalog.forget_removed();
  core.plans.advance();
  EXPECT_FALSE(core.device().plan);
}

TEST(DrainPlans, VictimsStayWhenAPlanIsCancelledAndThoseThatAreGoneAreNoMatter) {
  Full core;
  core.plans.begin(kDevice, kC, {kA, kB});
  core.residency.forget(kDevice, kB);
  core.plans.cancel(kDevice);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_FALSE(core.device().plan);
  core.plans.cancel(kDevice);  // There is none.
}

TEST(DrainPlans, NobodyGoesOnceEnoughWasGivenBack) {
  Full core;
  core.residency.forget(kDevice, kB);
  core.residency.hold_pages(kDevice, kA, 6);
  core.plans.begin(kDevice, kC, {kA});
  core.plans.advance();
  EXPECT_TRUE(core.loads().empty());
  core.residency.hold_pages(kDevice, kA, 3);  // 20 less 8 and 3 are the 9 that it needs.
  core.plans.advance();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kC}}));
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(DrainPlans, APlanWhoseVictimsAreNotEnoughAnyMoreIsGivenUp) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  core.finish(core.request);
  core.residency.hold_pages(kDevice, kB, 6);  // B has grown.
  core.plans.advance();
  EXPECT_TRUE(core.loads().empty());
  EXPECT_FALSE(core.device().plan);
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(DrainPlans, AGroupInTheWayIsDissolvedBeforeTheModelComes) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  const RequestId request = core.run(kGroup);
  core.wait(kA);
  core.plans.begin(kOther, kA, {kShard});
  EXPECT_TRUE(core.at(kGroup).is<Draining>()) << "rank 0 stands for the shard";
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty());
  core.finish(request);
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_TRUE(core.loads().empty()) << "the shard is there";
  core.residency.lose(kDevice, kGroup);
  core.residency.evict_here(kOther, kShard, EvictMode::kNow, EvictionReason::kDisplaced);
  core.plans.advance();
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}})) << "its worker keeps the order";
}

// ---- External engines ----

/// The engine serves; kA, which has no room beside it, is wanted.
struct WithEngine : TestState {
  explicit WithEngine(std::optional<Duration> drain = 2s) {
    add_engine(kEnginePages, drain);
    serve(kEngine);
    wait(kA);
  }
};

TEST(DrainPlans, AnIdleEngineIsSuspendedForWhatIsLackingAndThenTheModelComes) {
  WithEngine core;
  core.plans.begin(kDevice, kA, {kEngine});
  core.plans.advance();
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kWhenIdle);
  EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, 1) << "8 are free, and 9 are needed";
  core.plans.advance();
  EXPECT_TRUE(core.loads().empty()) << "it is on its way out";
  core.residency.suspend(kDevice, kEngine, 11);
  core.plans.advance();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

TEST(DrainPlans, AnEngineThatFreedTooLittleIsAskedForTheRest) {
  WithEngine core;
  core.plans.begin(kDevice, kA, {kEngine});
  core.plans.advance();
  core.residency.suspend(kDevice, kEngine, 14);
  core.commands.clear();
  core.plans.advance();
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, 3);
}

TEST(DrainPlans, ABusyEngineIsFrozenWithItsRequestsAfterItsTime) {
  WithEngine core;
  core.run(kEngine);
  core.plans.begin(kDevice, kA, {kEngine});
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_EQ(core.wake(), core.state.now + 2s);
  core.pass(2s);
  core.plans.advance();
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kFrozen);
}

TEST(DrainPlans, AnEngineThatCannotBeFrozenIsWaitedFor) {
  WithEngine core(std::nullopt);
  const RequestId request = core.run(kEngine);
  core.plans.begin(kDevice, kA, {kEngine});
  core.pass(1h);
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty());
  core.finish(request);
  core.plans.advance();
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kWhenIdle);
}

TEST(DrainPlans, AnEngineThatIsOnlyDisplacedKeepsItsPages) {
  TestState core;
  core.add_engine(5);
  core.model(kA).config.displaces = {kEngine};
  core.serve(kEngine);
  core.residency.hold_pages(kDevice, kEngine, 5);
  core.wait(kA);
  core.plans.begin(kDevice, kA, {kEngine});
  core.plans.advance();
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, 0);
  EXPECT_TRUE(core.loads().empty());
}

// ---- Pages for what runs ----

DeviceReport wanting(std::int64_t pages, ModelId by = kA) {
  return {.pages_wanted = pages, .wanted_by = by};
}

TEST(DrainPlans, ModelsOfOursGoAtOnceForASequenceThatLacksPages) {
  Full core;
  core.run(kB);
  core.plans.want_pages(kDevice, wanting(3));
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0].model, kB);
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
  EXPECT_EQ(core.at(kB).as<Evicting>()->why, EvictionReason::kOutgrown);
  EXPECT_FALSE(core.device().plan);
}

TEST(DrainPlans, WhatGoesForASequenceIsNotThereForLoads) {
  Full core;
  core.plans.want_pages(kDevice, wanting(3));
  ASSERT_EQ(core.evictions().size(), 1U);
  EXPECT_EQ(core.wake(), core.state.now + 1s);
  const std::int64_t at_once = view(core.state, core.device(), kC).free_pages;
  core.pass(1s);
  EXPECT_EQ(view(core.state, core.device(), kC).free_pages, at_once + 3) << "it has not taken them";
}

TEST(DrainPlans, TheWorkerDoesWithoutWhatPinnedModelsHave) {
  Full core;
  core.model(kB).config.pin = true;
  core.plans.want_pages(kDevice, wanting(3));
  EXPECT_TRUE(core.evictions().empty());
  ASSERT_EQ(core.all<TellWorker>().size(), 1U);
  EXPECT_TRUE(std::holds_alternative<NoPages>(core.all<TellWorker>()[0].message));
}

TEST(DrainPlans, NothingIsPromisedWhileTheDeviceChangesOrItsModelIsGone) {
  Full core;
  core.residency.evict(kDevice, kB, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.commands.clear();
  core.plans.want_pages(kDevice, wanting(3));
  core.residency.forget(kDevice, kB);
  core.plans.want_pages(kDevice, wanting(3, kC));
  EXPECT_TRUE(core.commands.empty());
}

// A manager that is new hears of requests from their front, perhaps after the worker has said what
// they lack, which it says once.
TEST(DrainPlans, OfAWorkerThatWasFoundTheRequestsThatLackPagesMayBeToldOfLater) {
  Full core;
  core.state.devices.at(kDevice).found = true;
  core.finish(core.request);
  core.plans.want_pages(kDevice, wanting(3));
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty());
  core.run(kA);
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
}

TEST(DrainPlans, OfAWorkerThatWasFoundRequestsThatNobodyTellsOfHoldUpNothing) {
  Full core;
  core.state.devices.at(kDevice).found = true;
  core.finish(core.request);
  core.plans.want_pages(kDevice, wanting(3));
  core.plans.advance();
  EXPECT_TRUE(core.device().plan);
  core.state.now += std::chrono::seconds(2);
  core.plans.advance();
  EXPECT_FALSE(core.device().plan);
  EXPECT_TRUE(core.evictions().empty());
}

TEST(DrainPlans, APlanForAnotherModelGivesWayToASequenceThatLacksPages) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  core.plans.want_pages(kDevice, wanting(3));
  EXPECT_TRUE(core.at(kA).is<Serving>()) << "it is sent requests again";
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
}

/// A model of ours beside an engine that has a request, on a device that they fill.
struct BesideEngine : TestState {
  BesideEngine() {
    add_engine(9);
    serve(kA);
    serve(kEngine);
    residency.hold_pages(kDevice, kEngine, 9);
    ours = run(kA);
    theirs = run(kEngine);
    plans.want_pages(kDevice, wanting(3));
  }
  RequestId ours{};
  RequestId theirs{};
};

TEST(DrainPlans, AnEngineWithRequestsIsWaitedForAndSentNothingMore) {
  BesideEngine core;
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.at(kEngine).is<Draining>());
  core.plans.want_pages(kDevice, wanting(5));
  EXPECT_EQ(core.device().plan->lacks, 3) << "one such plan at a time";
  core.finish(core.theirs);
  core.plans.advance();
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, 3);
}

TEST(DrainPlans, TheEngineGoesOnWhenThePagesWereFoundOtherwise) {
  BesideEngine core;
  core.plans.have_pages(kDevice);
  EXPECT_FALSE(core.device().plan);
  EXPECT_TRUE(core.at(kEngine).is<Serving>());
}

TEST(DrainPlans, TheEngineGoesOnWhenNobodyLacksPagesAnyMore) {
  BesideEngine core;
  core.finish(core.ours);
  core.plans.advance();
  EXPECT_FALSE(core.device().plan);
  EXPECT_TRUE(core.at(kEngine).is<Serving>());
}

TEST(DrainPlans, ThatTheWorkerHasPagesEndsNoPlanForAModel) {
  Full core;
  core.plans.begin(kDevice, kC, {kA});
  core.plans.have_pages(kDevice);
  EXPECT_TRUE(core.device().plan);
}

}  // namespace
}  // namespace heddle::core::manager
