#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using test::kA;
using test::kDevice;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::Spots;
using test::TestState;

constexpr DeviceId kThird{2};
constexpr ModelId kLast{7};  ///< Rank 2, where a group has three.

/// Two devices and a model that is sharded over them.
struct Two : TestState {
  Two() : TestState(2) { add_group(); }
  void complete() { at(kGroup).complete = at(kShard, kOther).complete = true; }
};

/// A model that is sharded over three devices; all its shards are on their way.
struct Three : TestState {
  Three() : TestState(3) {
    add_group();
    ManagerModel last = configuration.models.back();
    last.id = kLast;
    last.footprints = {{kThird, last.footprints.at(kOther)}};
    configuration.models[3].groups.at(kDevice).push_back({.model = kLast, .device = kThird});
    configuration.models.push_back(last);
    configure();
    load_group();
    residency.begin_load(kThird, kLast, LoadReason::kRequest, {.leader = kDevice});
    commands.clear();
  }
};

// ---- Groups that come ----

TEST(TendGroups, AGroupIsFormedWhenAllItsShardsAreComplete) {
  Two core;
  core.load_group();
  core.at(kGroup).complete = true;
  tend_groups(core.parts);
  EXPECT_TRUE(core.all<FormGroup>().empty()) << "the other shard is not";
  core.at(kGroup).complete = false;
  core.at(kShard, kOther).complete = true;
  tend_groups(core.parts);
  EXPECT_TRUE(core.all<FormGroup>().empty()) << "its leader is not";
  core.complete();
  tend_groups(core.parts);
  ASSERT_EQ(core.all<FormGroup>().size(), 1U);
  EXPECT_EQ(core.all<FormGroup>()[0].members.front().model, kGroup);
  EXPECT_EQ(core.all<FormGroup>()[0].members.back().model, kShard);
}

TEST(TendGroups, AGroupIsFormedOnce) {
  Two core;
  core.load_group();
  core.complete();
  tend_groups(core.parts);
  tend_groups(core.parts);
  EXPECT_EQ(core.all<FormGroup>().size(), 1U);
}

TEST(TendGroups, WhatLeavesHasToBeGoneFirst) {
  Two core;
  core.serve(kA, kOther);
  core.residency.evict(kOther, kA, EvictMode::kWhenIdle, EvictionReason::kDisplaced);
  core.load_group();
  core.complete();
  tend_groups(core.parts);
  EXPECT_TRUE(core.all<FormGroup>().empty());
  EXPECT_FALSE(core.at(kGroup).staged());
  core.residency.lose(kOther, kA);
  tend_groups(core.parts);
  EXPECT_EQ(core.all<FormGroup>().size(), 1U);
}

TEST(TendGroups, TheShardsStandByWhereSomethingElseStays) {
  Two core;
  core.serve(kA, kOther);  // Its eviction was refused.
  core.load_group();
  core.complete();
  tend_groups(core.parts);
  EXPECT_TRUE(core.all<FormGroup>().empty());
  EXPECT_TRUE(core.at(kGroup).staged());
  EXPECT_TRUE(core.at(kShard, kOther).staged());
}

TEST(TendGroups, ShardsThatNobodyAskedForAreLeftAlone) {
  Two core;
  core.stage(kGroup);
  tend_groups(core.parts);
  EXPECT_TRUE(core.evictions().empty()) << "though the other is not there";
  core.stage(kShard);
  tend_groups(core.parts);
  EXPECT_TRUE(core.all<FormGroup>().empty());
  core.residency.forget(kDevice, kGroup);
  tend_groups(core.parts);
  EXPECT_TRUE(core.evictions().empty());
}

// ---- Groups that have lost a shard ----

TEST(TendGroups, WithoutOneOfItsShardsTheLeaderGoesAtOnce) {
  Two core;
  core.serve_group();
  core.residency.forget(kOther, kShard);
  tend_groups(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
  EXPECT_EQ(core.at(kGroup).as<Evicting>()->why, EvictionReason::kFailed);
  tend_groups(core.parts);
  EXPECT_EQ(core.evictions().size(), 1U) << "it is told once";
}

TEST(TendGroups, AShardThatLeavesAloneIsAsGoodAsGone) {
  Two core;
  core.load_group();
  core.residency.evict_here(kOther, kShard, EvictMode::kNow, EvictionReason::kFailed);
  core.commands.clear();
  tend_groups(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
}

TEST(TendGroups, WhatIsLeftOfAGroupThatWasOnItsWayGoesInTheSamePass) {
  Three core;
  core.residency.forget(kOther, kShard);
  tend_groups(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kGroup}, {kThird, kLast}}));
  EXPECT_EQ(core.all<EvictFrom>()[1].mode, EvictMode::kNow);
}

// ---- Groups that go ----

TEST(TendGroups, ShardsThatAreOnTheirWayGoWithTheirLeaderForItsReason) {
  Three core;
  core.residency.evict(kDevice, kGroup, EvictMode::kNow, EvictionReason::kOperator);
  core.commands.clear();
  tend_groups(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kOther, kShard}, {kThird, kLast}}));
  EXPECT_EQ(core.at(kShard, kOther).as<Evicting>()->why, EvictionReason::kOperator);
}

TEST(TendGroups, AShardThatHasRunFollowsItsLeaderToTheEnd) {
  Two core;
  core.serve_group();
  core.residency.evict(kDevice, kGroup, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.commands.clear();
  tend_groups(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
  core.residency.lose(kDevice, kGroup);
  tend_groups(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kOther, kShard}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
  EXPECT_EQ(core.at(kShard, kOther).as<Evicting>()->why, EvictionReason::kIdle)
      << "for what its leader went";
  tend_groups(core.parts);
  EXPECT_EQ(core.evictions().size(), 1U) << "it is told once";
}

}  // namespace
}  // namespace heddle::core::manager
