#include "core/manager/residency.h"

#include <gtest/gtest.h>

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

// ---- Who comes ----

TEST(Residency, ALoadIsCommandedOnWhatTheWorkerLastSaid) {
  TestState core;
  core.devices.version(kDevice, 7);
  core.model(kA).images[HostId(0)].cached = true;
  core.residency.load(kDevice, kA, {}, LoadReason::kRequest, "because");
  EXPECT_TRUE(core.at(kA).is<Loading>());
  EXPECT_EQ(core.at(kA).load_began, core.state.now);
  EXPECT_TRUE(core.at(kA).from_host);
  EXPECT_FALSE(core.at(kA).complete);
  ASSERT_EQ(core.all<LoadOn>().size(), 1U);
  EXPECT_EQ(core.all<LoadOn>()[0].basis, (Basis{.epoch = WorkerEpoch(1), .version = 7}));
  EXPECT_EQ(core.model(kA).loads.at(static_cast<std::size_t>(LoadReason::kRequest)), 1U);
}

TEST(Residency, TheVictimsOfALoadGoBeforeItForTheModelThatComes) {
  TestState core;
  core.serve(kA);
  core.residency.load(kDevice, kB, {kA}, LoadReason::kRequest, "because");
  ASSERT_EQ(core.commands.size(), 4U);
  EXPECT_EQ(std::get<Decision>(core.commands[0]).kind, DecisionKind::kLoad);
  EXPECT_EQ(std::get<Decision>(core.commands[0]).why, "because");
  EXPECT_EQ(std::get<Decision>(core.commands[1]).for_model, kB);
  EXPECT_EQ(std::get<EvictFrom>(core.commands[2]).mode, EvictMode::kWhenIdle);
  EXPECT_EQ(std::get<LoadOn>(core.commands[3]).model, kB);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kDisplaced);
}

TEST(Residency, WhyAModelComesSaysWhatKindOfDecisionItIs) {
  for (const auto& [why, kind] : {std::pair{LoadReason::kRequest, DecisionKind::kLoad},
                                  {LoadReason::kOperator, DecisionKind::kLoad},
                                  {LoadReason::kForecast, DecisionKind::kPrewarm},
                                  {LoadReason::kLoad, DecisionKind::kAdd},
                                  {LoadReason::kPressure, DecisionKind::kMove}}) {
    TestState core;
    core.residency.load(kDevice, kA, {}, why, "");
    EXPECT_EQ(core.decisions(kind).size(), 1U) << name(why);
    EXPECT_EQ(core.at(kA).why, why);
  }
}

TEST(Residency, NoModelIsLoadedWhereItIsUnlessItsEngineStandsBy) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.residency.suspend(kDevice, kEngine, 3);
  core.residency.load(kDevice, kEngine, {}, LoadReason::kRequest, "");
  EXPECT_TRUE(core.at(kEngine).is<Loading>());
  core.serve(kA);
  EXPECT_DEATH(core.residency.load(kDevice, kA, {}, LoadReason::kRequest, ""), "Suspended");
}

TEST(Residency, WhatRunsIsNotUndisturbedWhenSomethingComes) {
  TestState core;
  core.serve(kA).answered = true;
  core.run(kA);
  ASSERT_TRUE(core.device().undisturbed);
  core.load(kB);
  EXPECT_FALSE(core.device().undisturbed);
}

TEST(Residency, WhatRunsBesideGuestsOfOthersIsNotUndisturbed) {
  TestState core(2);
  core.serve(kA).answered = true;
  core.serve(kB, kOther);
  core.guests.lend(kDevice, kOther, kB, 5, "");
  core.run(kA);
  EXPECT_FALSE(core.device().undisturbed);
}

TEST(Residency, AModelServesFromWhenItsLoadEndedAndNotFromLater) {
  TestState core;
  core.load(kA);
  core.pass(3s);
  core.residency.serve(kDevice, kA);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  const Instant since = core.state.now;
  core.pass(3s);
  core.residency.serve(kDevice, kA);
  EXPECT_EQ(core.at(kA).serving_since, since);
}

// ---- Who goes ----

TEST(Residency, WhatIsDrainedKeepsItsFirstReasonAndIsSentRequestsAgainWhenResumed) {
  TestState core;
  core.serve(kA);
  core.residency.drain(kDevice, kA, true);
  core.residency.drain(kDevice, kA);
  ASSERT_TRUE(core.at(kA).is<Draining>());
  EXPECT_TRUE(core.at(kA).as<Draining>()->cramped);
  core.residency.drain_for(kDevice, kA, kB, kA);
  EXPECT_FALSE(core.at(kA).as<Draining>()->cramped) << "another model wants its place now";
  core.residency.resume(kDevice, kA);
  EXPECT_TRUE(core.at(kA).is<Serving>());
}

TEST(Residency, OnlyWhatIsDrainedResumes) {
  TestState core;
  core.load(kA);
  core.residency.resume(kDevice, kA);
  EXPECT_TRUE(core.at(kA).is<Loading>());
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kOperator);
  core.residency.resume(kDevice, kA);
  EXPECT_TRUE(core.at(kA).is<Evicting>());
}

TEST(Residency, ADrainForAnotherIsNotedOfTheNamedModel) {
  TestState core;
  core.serve(kA);
  core.residency.drain_for(kDevice, kA, kB, kA);
  ASSERT_EQ(core.decisions(DecisionKind::kDrain).size(), 1U);
  EXPECT_EQ(core.decisions(DecisionKind::kDrain)[0].model, kA);
  EXPECT_EQ(core.decisions(DecisionKind::kDrain)[0].for_model, kB);
  EXPECT_TRUE(core.evictions().empty());
}

TEST(Residency, AnEvictionSaysWhatTheImageIsWorthAndWhatMustComeFree) {
  TestState core;
  core.serve(kA);
  core.finish(core.run(kA));
  core.commands.clear();
  core.pass(5s);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kIdle, {}, 4);
  ASSERT_EQ(core.all<EvictFrom>().size(), 1U);
  EXPECT_EQ(core.all<EvictFrom>()[0],
            (EvictFrom{.device = kDevice,
                       .model = kA,
                       .basis = {.epoch = WorkerEpoch(1)},
                       .mode = EvictMode::kNow,
                       .free_pages = 4,
                       .idle = 5s}));
}

TEST(Residency, AModelWithRequestsIsNotEvictedAsIdle) {
  TestState core;
  core.serve(kA);
  core.run(kA);
  EXPECT_DEATH(core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle),
               "in_flight");
}

TEST(Residency, WhatItsWorkerDidNotEvictServesAgainOrIsStaged) {
  TestState core(2);
  core.add_group();
  core.serve(kA);
  core.stage(kShard);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.residency.evict(kOther, kShard, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.residency.eviction_refused(kDevice, kA);
  core.residency.eviction_refused(kOther, kShard);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
  EXPECT_TRUE(core.at(kShard, kOther).staged());
}

TEST(Residency, AnEvictionIsCountedByTheReasonThatItWasAskedFor) {
  TestState core;
  core.serve(kA);
  core.serve(kB);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kCramped);
  core.residency.count_eviction(kDevice, kA);
  core.residency.count_eviction(kDevice, kB);  // It was not asked for.
  EXPECT_EQ(core.model(kA).evictions.at(static_cast<std::size_t>(EvictionReason::kCramped)), 1U);
  EXPECT_EQ(core.model(kB).evictions.at(static_cast<std::size_t>(EvictionReason::kDisplaced)), 1U);
}

TEST(Residency, TheRequestsOfALostInstanceWaitAgain) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.residency.lose(kDevice, kA);
  EXPECT_FALSE(core.there(kA));
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  EXPECT_FALSE(core.state.requests.at(id).device);
}

TEST(Residency, WhatWasPrewarmedInVainIsWastedIfItIsLostAndNotIfItsWorkerDied) {
  TestState core;
  core.load(kA, kDevice, LoadReason::kForecast);
  core.residency.forget(kDevice, kA);
  EXPECT_EQ(core.model(kA).wasted_bytes, 0U);
  core.load(kA, kDevice, LoadReason::kForecast);
  core.residency.lose(kDevice, kA);
  EXPECT_EQ(core.model(kA).wasted_bytes, test::kImagePages * test::kPageBytes);
}

TEST(Residency, AnEngineStandsByWithWhatItHoldsAndItsRequests) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  const RequestId id = core.run(kEngine);
  core.residency.evict(kDevice, kEngine, EvictMode::kFrozen, EvictionReason::kDisplaced);
  core.residency.suspend(kDevice, kEngine, 3);
  EXPECT_TRUE(core.at(kEngine).is<Suspended>());
  EXPECT_EQ(core.at(kEngine).kv_pages, 3);
  EXPECT_EQ(core.at(kEngine).in_flight, std::set<RequestId>{id});
}

// ---- Groups ----

TEST(Residency, AGroupIsFormedInOrderOfRankAndThenItsLeaderAloneTakesRequests) {
  TestState core(2);
  core.add_group();
  core.load_group();
  core.residency.form(kGroup, kDevice);
  EXPECT_TRUE(core.at(kGroup).part().forming);
  EXPECT_TRUE(core.at(kGroup).is<Loading>()) << "the workers have not said so yet";
  ASSERT_EQ(core.all<FormGroup>().size(), 1U);
  EXPECT_EQ(
      core.all<FormGroup>()[0].members,
      (std::vector<GroupMember>{{.device = kDevice, .epoch = WorkerEpoch(1), .model = kGroup},
                                {.device = kOther, .epoch = WorkerEpoch(2), .model = kShard}}));
  core.pass(1s);
  core.residency.formed(kGroup, kDevice);
  EXPECT_TRUE(core.at(kGroup).is<Serving>());
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
  EXPECT_EQ(core.at(kShard, kOther).serving_since, core.state.now);
  EXPECT_TRUE(core.at(kShard, kOther).used) << "it was not prewarmed in vain";
  EXPECT_FALSE(core.at(kGroup).used);
}

TEST(Residency, AStagedShardIsThereAndServesNothingUntilItsGroupIsAskedFor) {
  TestState core(2);
  core.add_group();
  core.stage(kGroup);
  EXPECT_TRUE(core.at(kGroup).is<Member>());
  EXPECT_TRUE(core.at(kGroup).staged());
  core.residency.join(kDevice, kGroup, kDevice);
  EXPECT_FALSE(core.at(kGroup).staged());
  EXPECT_TRUE(core.at(kGroup).is<Loading>());
  EXPECT_TRUE(core.commands.empty()) << "its weights are there, or on their way";
}

TEST(Residency, AGroupThatStandsByIsStagedOnAllItsDevices) {
  TestState core(2);
  core.add_group();
  core.load_group();
  core.residency.stand_by(kGroup, kDevice);
  for (const auto& [device, shard] : Spots{{kDevice, kGroup}, {kOther, kShard}}) {
    EXPECT_TRUE(core.at(shard, device).staged());
    EXPECT_TRUE(core.at(shard, device).is<Member>());
  }
  EXPECT_EQ(core.at(kShard, kOther).part().leader, kDevice);
}

TEST(Residency, OfAGroupRankZeroGoesFirstWhicheverShardIsInTheWay) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.residency.evict(kOther, kShard, EvictMode::kWhenIdle, EvictionReason::kDisplaced, kA);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
  core.residency.evict(kOther, kShard, EvictMode::kWhenIdle, EvictionReason::kDisplaced, kA);
  EXPECT_EQ(core.evictions().size(), 1U) << "it goes already";
}

TEST(Residency, WithoutItsLeaderAFurtherShardIsEvictedByNameAlone) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.residency.forget(kDevice, kGroup);
  core.residency.evict(kOther, kShard, EvictMode::kNow, EvictionReason::kOperator);
  EXPECT_TRUE(core.evictions().empty());
  core.residency.evict_here(kOther, kShard, EvictMode::kNow, EvictionReason::kOperator);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kShard}}));
}

TEST(Residency, StagedShardsGoOneByOne) {
  TestState core(2);
  core.add_group();
  core.stage(kGroup);
  core.stage(kShard);
  core.residency.evict(kOther, kShard, EvictMode::kWhenIdle, EvictionReason::kDisplaced);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kShard}}));
  EXPECT_TRUE(core.at(kGroup).is<Member>());
}

TEST(Residency, AFurtherShardIsDrainedAndResumedByWayOfItsLeader) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.residency.drain(kOther, kShard);
  EXPECT_TRUE(core.at(kGroup).is<Draining>());
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
  core.residency.resume(kOther, kShard);
  EXPECT_TRUE(core.at(kGroup).is<Serving>());
  core.residency.forget(kDevice, kGroup);
  core.residency.resume(kOther, kShard);  // There is nothing to resume.
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
}

TEST(Residency, AMemberRemembersWhyItsLeaderWent) {
  TestState core(2);
  core.add_group();
  core.load_group();
  core.residency.leader_goes(kOther, kShard, EvictionReason::kIdle);  // It is no member yet.
  EXPECT_TRUE(core.at(kShard, kOther).is<Loading>());
  core.residency.formed(kGroup, kDevice);
  core.residency.leader_goes(kOther, kShard, EvictionReason::kIdle);
  EXPECT_EQ(core.at(kShard, kOther).as<Member>()->leader_went_for, EvictionReason::kIdle);
}

// ---- What is said of instances ----

TEST(Residency, TellsOnceThatAnInstanceHasBecomeComplete) {
  TestState core;
  core.load(kA);
  EXPECT_FALSE(core.residency.observe(kDevice, {.model = kA, .kv_pages = 2}));
  EXPECT_EQ(core.at(kA).kv_pages, 2);
  EXPECT_TRUE(core.residency.observe(kDevice, {.model = kA, .complete = true}));
  EXPECT_FALSE(core.residency.observe(kDevice, {.model = kA, .complete = true}));
  EXPECT_FALSE(core.residency.observe(kDevice, {.model = kA}));
  EXPECT_TRUE(core.at(kA).complete) << "weights that are there stay there";
}

TEST(Residency, TheMostPagesFallSlowlyToWhatThereIs) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.residency.forget(kDevice, kGroup);
  core.serve(kA);
  core.residency.hold_pages(kDevice, kA, 100);
  core.residency.hold_pages(kOther, kShard, 100);
  core.residency.decay_peaks();
  EXPECT_EQ(core.at(kA).kv_peak, 100);
  core.residency.hold_pages(kDevice, kA, 97);
  core.residency.decay_peaks();
  EXPECT_EQ(core.at(kA).kv_peak, 98);
  core.residency.decay_peaks();
  EXPECT_EQ(core.at(kA).kv_peak, 97);
  EXPECT_EQ(core.at(kShard, kOther).kv_peak, 0) << "a group has its devices to itself";
}

TEST(Residency, AnInstanceIsSparedAndMovesUntilItStays) {
  TestState core(2);
  core.serve(kA);
  core.residency.spare(kDevice, kA, true);
  core.residency.move(kDevice, kA, kOther);
  EXPECT_TRUE(core.at(kA).spare);
  EXPECT_EQ(core.at(kA).moves_to, kOther);
  core.residency.move(kDevice, kA, std::nullopt);
  EXPECT_FALSE(core.at(kA).moves_to);
  EXPECT_TRUE(core.commands.empty()) << "workers hear nothing of that";
}

}  // namespace
}  // namespace heddle::core::manager
