#include "core/manager/replicas.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"
#include "core/manager/value.h"

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

constexpr DeviceId kSecondBlock{2};

/// A sharded model that serves on the first block of two. Five requests of its are borne by nobody
/// and have waited for as long as anybody bears with what runs.
struct Crowded : TestState {
  explicit Crowded(PlannerOptions planner = {}) : TestState(4, planner) {
    add_group();
    serve_group();
    run(kGroup);
    shortages.count_unborne(kGroup, 5);
    pass(state.options.drain_after);
    shortages.count_unborne(kGroup, 5);
  }
  void busy(ModelId model, int count) {
    serve(model, kSecondBlock);
    for (int i = 0; i < count; ++i) {
      run(model, kSecondBlock);
    }
  }
};

TEST(BlockForReplica, IsOneThatTheModelDoesNotHave) {
  Crowded core;
  const auto block = block_for_replica(core.state, kGroup);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->device, kSecondBlock);
  EXPECT_GT(block->load_takes, 0s);
  EXPECT_EQ(block->lost, 0);

  core.serve_group(kSecondBlock);
  EXPECT_FALSE(block_for_replica(core.state, kGroup)) << "it has both";
}

TEST(BlockForReplica, WhatIsLostThereIsCounted) {
  Crowded core({.value = true});
  core.serve(kA, kSecondBlock);
  core.finish(core.run(kA, kSecondBlock));
  const auto block = block_for_replica(core.state, kGroup);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->lost, worth(core.state, core.device(kSecondBlock), kA));
  EXPECT_GT(block->lost, 0);
}

TEST(BlockForReplica, WhoRunsThereIsBorneWithForAWhile) {
  Crowded core;
  core.busy(kB, 4);
  EXPECT_TRUE(block_for_replica(core.state, kGroup));
  core.shortages.pay_unborne(kGroup, 0.1);
  EXPECT_FALSE(block_for_replica(core.state, kGroup)) << "not long enough";
}

TEST(BlockForReplica, WhoHasAsManyRequestsStays) {
  Crowded core;
  core.busy(kB, 5);
  EXPECT_FALSE(block_for_replica(core.state, kGroup));
}

TEST(BlockForReplica, AnEngineStays) {
  Crowded core;
  core.add_engine();
  core.configuration.models.back().footprints = {{kSecondBlock, {.image_pages = 2}}};
  core.configure();
  core.serve(kEngine, kSecondBlock);
  EXPECT_FALSE(block_for_replica(core.state, kGroup));
}

TEST(AddReplica, ClaimsABlockOnce) {
  Crowded core;
  core.busy(kB, 1);
  const ReplicaPlace place = block_for_replica(core.state, kGroup).value();
  EXPECT_TRUE(add_replica(core.parts, kGroup, place, "many wait"));
  ASSERT_TRUE(core.model(kGroup).claim);
  EXPECT_EQ(core.model(kGroup).claim->leader, kSecondBlock);
  EXPECT_EQ(core.model(kGroup).claim->more, "many wait");
  EXPECT_TRUE(core.at(kB, kSecondBlock).is<Draining>());
  EXPECT_FALSE(add_replica(core.parts, kGroup, place, "many wait"));
}

TEST(AddReplica, LoadsAWholeModelAtOnce) {
  TestState core(2);
  core.serve(kA);
  const ReplicaPlace place = place_for_one_more(core.state, kA).value();
  EXPECT_TRUE(add_replica(core.parts, kA, place, "many wait"));
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(AddReplica, AClaimEndsWithTheModelsRequests) {
  Crowded core;
  core.busy(kB, 1);
  ASSERT_TRUE(
      add_replica(core.parts, kGroup, block_for_replica(core.state, kGroup).value(), "many wait"));
  core.claims.advance();
  EXPECT_TRUE(core.model(kGroup).claim) << "no request waits, but one is in flight";
  core.finish(*core.at(kGroup).in_flight.begin());
  core.claims.advance();
  EXPECT_FALSE(core.model(kGroup).claim);
  EXPECT_TRUE(core.at(kB, kSecondBlock).is<Serving>());
}

TEST(AddReplica, AClaimEndsWhenAnOperatorWantsTheModelGone) {
  Crowded core;
  core.busy(kB, 1);
  ASSERT_TRUE(
      add_replica(core.parts, kGroup, block_for_replica(core.state, kGroup).value(), "many wait"));
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kGroup});
  core.claims.advance();
  EXPECT_FALSE(core.model(kGroup).claim);
}

}  // namespace
}  // namespace heddle::core::manager
