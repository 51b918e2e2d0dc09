#include <cstdint>
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
using test::kGroup;
using test::kOther;
using test::kShard;
using test::Spots;
using test::TestState;

void ask(TestState& core, ModelId model, EvictionReason why = EvictionReason::kOperator) {
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = model, .why = why});
}

// ---- Whom an operator wants gone ----

TEST(Unload, AModelThatIsIdleGoesAndOthersStay) {
  TestState core;
  core.serve(kA);
  core.serve(kB);
  ask(core, kA);
  unload(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kWhenIdle);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kOperator);
}

TEST(Unload, AModelWithRequestsIsSentNoMoreAndGoesWhenTheyHaveEnded) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  ask(core, kA);
  unload(core.parts);
  EXPECT_TRUE(core.at(kA).is<Draining>());
  EXPECT_TRUE(core.evictions().empty());
  core.finish(id);
  unload(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
}

TEST(Unload, AModelThatIsOnItsWayGoesAtOnce) {
  TestState core;
  core.load(kA);
  ask(core, kA);
  unload(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
}

TEST(Unload, AModelThatLeavesIsToldOnce) {
  TestState core;
  core.serve(kA);
  ask(core, kA);
  unload(core.parts);
  unload(core.parts);
  EXPECT_EQ(core.evictions().size(), 1U);
}

TEST(Unload, TheLeaderOfAGroupIsToldForAll) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  ask(core, kGroup);
  unload(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_TRUE(core.at(kGroup).is<Evicting>());
}

TEST(Unload, AStagedShardIsToldItself) {
  TestState core(2);
  core.add_group();
  core.stage(kShard);
  ask(core, kGroup);
  unload(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kShard}}));
}

// ---- Engines ----

TEST(Unload, AnEngineGivesBackAllForAnOperatorAndHalfWhenItIsMerelyIdle) {
  for (const auto& [why, pages] : {std::pair{EvictionReason::kOperator, INT64_MAX},
                                   {EvictionReason::kIdle, kEnginePages / 2}}) {
    TestState core;
    core.add_engine();
    core.serve(kEngine);
    ask(core, kEngine, why);
    unload(core.parts);
    ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
    EXPECT_EQ(core.all<EvictFrom>()[0].free_pages, pages);
  }
}

TEST(Unload, AnEngineThatStandsByIsEndedForAnOperatorAlone) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.residency.suspend(kDevice, kEngine, 3);
  ask(core, kEngine, EvictionReason::kIdle);
  unload(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  core.model(kEngine).unloads_asked.clear();
  ask(core, kEngine);
  unload(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kEngine}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
}

TEST(Unload, AnEngineThatStandsByWithRequestsIsEndedOnlyWhenItIsRemoved) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.run(kEngine);
  core.residency.suspend(kDevice, kEngine, 3);
  ask(core, kEngine);
  unload(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  core.remove(kEngine);
  unload(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kEngine}}));
}

// ---- What is not configured any more ----

TEST(Unload, WhoWaitsForARemovedModelIsToldAndWhatRunsThereEnds) {
  TestState core;
  core.serve(kA);
  const RequestId runs = core.run(kA);
  const RequestId waits = core.wait(kA);
  core.tickets.ask(AdminLoad{.ticket = TicketId(2), .model = kA});
  core.remove(kA);
  unload(core.parts);
  ASSERT_EQ(core.failed(), std::vector{waits});
  EXPECT_EQ(core.all<FailRequest>()[0].error.code, Code::kNotFound);
  ASSERT_EQ(core.all<AdminDone>().size(), 1U);
  EXPECT_TRUE(core.all<AdminDone>()[0].error);
  EXPECT_TRUE(core.at(kA).is<Draining>());
  core.finish(runs);
  unload(core.parts);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kRemoved);
}

TEST(Unload, ThatItIsRemovedIsTheReasonThoughAnOperatorAskedToo) {
  TestState core;
  core.serve(kA);
  ask(core, kA);
  core.remove(kA);
  unload(core.parts);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kRemoved);
}

// ---- Who is cramped ----

/// A model on the smaller of two devices.
struct Small : TestState {
  Small() : TestState(2) {
    device(kOther).config.pages = 40;
    serve(kA);
  }
};

TEST(UnloadCramped, AnIdleModelGoesWhereARequestOfItsOwnDoesNotFit) {
  Small core;
  core.wait(kA, 97);
  unload_cramped(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kCramped);
}

TEST(UnloadCramped, AModelStaysWhereAllItsRequestsFit) {
  Small core;
  core.wait(kA, 96);
  unload_cramped(core.parts);
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(UnloadCramped, AModelWithRequestsTakesNoMoreAndGoesWhenTheyHaveEnded) {
  Small core;
  const RequestId runs = core.run(kA);
  core.wait(kA, 97);
  unload_cramped(core.parts);
  ASSERT_TRUE(core.at(kA).is<Draining>());
  EXPECT_TRUE(core.at(kA).as<Draining>()->cramped);
  core.finish(runs);
  unload_cramped(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
}

TEST(UnloadCramped, AModelStaysWhenNoSuchRequestWaitsAnyMore) {
  Small core;
  core.run(kA);
  const RequestId waits = core.wait(kA, 97);
  unload_cramped(core.parts);
  ASSERT_TRUE(core.at(kA).is<Draining>());
  core.queues.cancel(waits);
  unload_cramped(core.parts);
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(UnloadCramped, WhatIsDrainedForAnotherModelIsLeftToThat) {
  Small core;
  core.run(kA);
  core.residency.drain(kDevice, kA);
  unload_cramped(core.parts);
  EXPECT_TRUE(core.at(kA).is<Draining>());
}

TEST(UnloadCramped, AModelThatIsOnItsWayIsNotCalledBack) {
  TestState core(2);
  core.device(kOther).config.pages = 40;
  core.load(kA);
  core.wait(kA, 97);
  unload_cramped(core.parts);
  EXPECT_TRUE(core.evictions().empty());
}

}  // namespace
}  // namespace heddle::core::manager
