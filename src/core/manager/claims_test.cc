#include "core/manager/claims.h"

#include <gtest/gtest.h>

#include "core/manager/groups.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::Spots;
using test::TestState;

const Spots kBlock{{kDevice, kGroup}, {kOther, kShard}};

/// Two devices, and a request for the sharded model.
struct Wanted : TestState {
  Wanted() : TestState(2) {
    add_group();
    request = wait(kGroup);
  }
  RequestId request{};
};

TEST(Claims, AnEmptyBlockIsLoadedAtOnce) {
  Wanted core;
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.loads(), kBlock);
  EXPECT_FALSE(core.at(kGroup).part().leader);
  EXPECT_EQ(core.at(kShard, kOther).part().leader, kDevice);
  EXPECT_EQ(core.at(kShard, kOther).why, LoadReason::kRequest);
  EXPECT_FALSE(core.model(kGroup).claim);
  EXPECT_FALSE(core.device().claimed);
  EXPECT_FALSE(core.device(kOther).claimed);
}

TEST(Claims, AnOperatorsLoadIsNoRequests) {
  Wanted core;
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kGroup});
  core.queues.cancel(core.request);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.at(kGroup).why, LoadReason::kOperator);
}

TEST(Claims, WhatIsIdleGoesForTheGroupAtOnce) {
  Wanted core;
  core.serve(kA, kOther);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.decisions(DecisionKind::kEvict)[0].for_model, kGroup);
  EXPECT_EQ(core.loads(), kBlock);
}

TEST(Claims, WhatRunsOnEitherDeviceIsDrainedAndHoldsUpBoth) {
  Wanted core;
  core.serve(kA, kOther);
  const RequestId runs = core.run(kA, kOther);
  core.claims.claim(kGroup, kDevice);
  EXPECT_TRUE(core.at(kA, kOther).is<Draining>());
  EXPECT_EQ(core.device().claimed, kGroup);
  EXPECT_TRUE(core.loads().empty());
  core.finish(runs);
  core.claims.advance();
  EXPECT_EQ(core.loads(), kBlock);
}

TEST(Claims, AModelThatRunsHasItsMinimumResidence) {
  Wanted core;
  core.model(kA).config.min_residence = 5s;
  core.serve(kA);
  core.run(kA);
  core.claims.claim(kGroup, kDevice);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_EQ(core.wake(), core.state.now + 5s);
  core.pass(5s);
  core.claims.advance();
  EXPECT_TRUE(core.at(kA).is<Draining>());
}

TEST(Claims, WhoWasToLeaveStaysWhenTheClaimIsCancelled) {
  Wanted core;
  core.serve(kA);
  core.run(kA);
  core.claims.claim(kGroup, kDevice);
  ASSERT_TRUE(core.at(kA).is<Draining>());
  core.claims.cancel(kGroup);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_FALSE(core.device().claimed);
  EXPECT_FALSE(core.device(kOther).claimed);
  core.claims.cancel(kGroup);  // There is none.
}

TEST(Claims, WhoAPlanWantsGoneIsDrainedStillWhenTheClaimIsCancelled) {
  Wanted core;
  core.serve(kA);
  core.run(kA);
  core.plans.begin(kDevice, kB, {kA});
  core.claims.claim(kGroup, kDevice);
  core.claims.cancel(kGroup);
  EXPECT_TRUE(core.at(kA).is<Draining>());
}

TEST(Claims, AClaimIsGivenUpWhenNobodyWantsTheGroupOrItMayNotBeLoadedYet) {
  Wanted gone;
  gone.serve(kA);
  gone.run(kA);
  gone.claims.claim(kGroup, kDevice);
  gone.queues.cancel(gone.request);
  gone.claims.advance();
  EXPECT_FALSE(gone.model(kGroup).claim);

  Wanted failed;
  failed.attempts.failed(kShard, {Code::kUnavailable, "disk"});
  failed.claims.claim(kGroup, kDevice);
  EXPECT_FALSE(failed.model(kGroup).claim);
  EXPECT_TRUE(failed.loads().empty());
}

TEST(Claims, StagedShardsJoinAndOnlyTheOthersAreLoaded) {
  Wanted core;
  core.stage(kShard, false);
  core.serve(kA, kOther);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kGroup}}));
  EXPECT_FALSE(core.at(kShard, kOther).staged());
  EXPECT_TRUE(core.at(kShard, kOther).is<Loading>());
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kA}}));
}

TEST(Claims, AShardOfItsOwnThatLeavesHasToBeGoneFirst) {
  Wanted core;
  core.stage(kShard);
  core.residency.evict(kOther, kShard, EvictMode::kWhenIdle, EvictionReason::kDisplaced);
  core.claims.claim(kGroup, kDevice);
  EXPECT_TRUE(core.loads().empty());
  core.residency.lose(kOther, kShard);
  core.claims.advance();
  EXPECT_EQ(core.loads(), kBlock);
}

TEST(Claims, AModelOfOursThatLeavesIsNotWaitedFor) {
  Wanted core;
  core.serve(kA);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.loads(), kBlock) << "its worker keeps the order";
}

TEST(Claims, AnEngineHasToHaveLeftWithAllThatItHolds) {
  Wanted core;
  core.add_engine();
  core.serve(kEngine);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kEngine}}));
  EXPECT_TRUE(core.loads().empty());
  core.residency.suspend(kDevice, kEngine, 3);
  core.claims.advance();
  EXPECT_TRUE(core.loads().empty());
  core.residency.suspend(kDevice, kEngine, 0);
  core.claims.advance();
  EXPECT_EQ(core.loads(), kBlock);
}

TEST(Claims, ADeviceThatRestsOrHasAPlanIsNotClear) {
  Wanted core;
  core.devices.pause(kOther, core.state.now + 1s);
  core.claims.claim(kGroup, kDevice);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_EQ(core.wake(), core.state.now + 1s);
  core.pass(1s);
  core.plans.begin(kDevice, kA, {});
  core.claims.advance();
  EXPECT_TRUE(core.loads().empty());
  core.plans.cancel(kDevice);
  core.claims.advance();
  EXPECT_EQ(core.loads(), kBlock);
}

TEST(Claimable, IsABlockWhoseDevicesAreUpAndFreeOfWhatNeverLeaves) {
  Wanted core;
  EXPECT_TRUE(claimable(core.state, kGroup, kDevice));
  core.devices.down(kOther);
  EXPECT_FALSE(claimable(core.state, kGroup, kDevice));
  core.devices.up({.device = kOther, .epoch = WorkerEpoch(9)});
  core.serve(kA, kOther);
  EXPECT_TRUE(claimable(core.state, kGroup, kDevice));
  core.model(kA).config.pin = true;
  EXPECT_FALSE(claimable(core.state, kGroup, kDevice));
  core.residency.evict(kOther, kA, EvictMode::kNow, EvictionReason::kFailed);
  EXPECT_TRUE(claimable(core.state, kGroup, kDevice)) << "it goes all the same";
}

TEST(Claimable, OneModelClaimsADevice) {
  Wanted core;
  core.device(kOther).claimed = kA;
  EXPECT_FALSE(claimable(core.state, kGroup, kDevice));
  core.device(kOther).claimed = kGroup;
  EXPECT_TRUE(claimable(core.state, kGroup, kDevice));
}

TEST(Claimable, APinnedModelsOwnStagedShardsAreNotInItsWay) {
  Wanted core;
  core.model(kGroup).config.pin = true;
  core.stage(kShard);
  EXPECT_TRUE(claimable(core.state, kGroup, kDevice));
}

}  // namespace
}  // namespace heddle::core::manager
