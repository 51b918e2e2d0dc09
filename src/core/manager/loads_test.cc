#include "core/manager/loads.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::Spots;
using test::TestState;

TEST(Loads, AModelIsLoadedForWhoeverWaits) {
  TestState core;
  core.wait(kA);
  core.loading.wanted(kDevice, kA, {}, "place");
  EXPECT_EQ(core.at(kA).why, LoadReason::kRequest);
  EXPECT_EQ(core.decisions(DecisionKind::kLoad)[0].model, kA);
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kB});
  core.loading.wanted(kDevice, kB, {}, "place");
  EXPECT_EQ(core.at(kB).why, LoadReason::kOperator);
}

TEST(Loads, WhatWasActedOnForARequestIsLeftAloneForAWhile) {
  TestState core(2);
  core.serve(kB);
  core.wait(kA);
  core.loading.wanted(kDevice, kA, {kB}, "place");
  const auto admits = [&core](ModelId model, DeviceId device) {
    return core.loading.admits(
        {.kind = policy::ActionKind::kScaleUp, .model = model, .devices = {device}});
  };
  EXPECT_FALSE(admits(kC, kDevice)) << "the device";
  EXPECT_FALSE(admits(kA, kOther)) << "the model";
  EXPECT_FALSE(admits(kB, kOther)) << "its victim";
  core.pass(4999ms);
  EXPECT_FALSE(admits(kC, kDevice));
  core.pass(1ms);
  EXPECT_TRUE(admits(kC, kDevice)) << "ten periods later";
  EXPECT_FALSE(admits(kB, kDevice)) << "what was admitted is held";
}

TEST(Loads, AnExternalEngineDoesNotMakeWayForAReplica) {
  TestState core(3);
  core.add_engine();
  core.serve(kEngine);
  core.serve(kA, kOther);
  core.resize(DeviceId(2), 5);
  EXPECT_FALSE(place_for_replica(core.state, kA)) << "it would leave too slowly";
  core.resize(DeviceId(2), 20);
  core.serve(kB, DeviceId(2));
  core.serve(kC, DeviceId(2));
  const auto place = place_for_replica(core.state, kA);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->device, DeviceId(2));
  EXPECT_EQ(place->victims.size(), 1U);
}

TEST(Loads, ForgettingWhatHasPassedChangesNothing) {
  TestState core;
  const policy::Action action{
      .kind = policy::ActionKind::kScaleUp, .model = kA, .devices = {kDevice}};
  core.loading.hold(action);
  core.loading.expire();
  EXPECT_FALSE(core.loading.admits(action));
  core.pass(10s);
  core.loading.expire();
  EXPECT_TRUE(core.loading.admits(action));
}

TEST(Loads, AReplicaIsLoadedUnlessSomethingWasDoneAMomentAgo) {
  TestState core(2);
  core.serve(kA);
  const ReplicaPlace place{.device = kOther};
  EXPECT_TRUE(core.loading.replica(kA, place, LoadReason::kLoad, "because"));
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_FALSE(core.loading.replica(kB, place, LoadReason::kLoad, "because"));
  EXPECT_EQ(core.loads().size(), 1U);
}

TEST(Loads, ALookAheadForgetsThatAnotherWasWanted) {
  TestState core;
  EXPECT_FALSE(core.loading.unfinished());
  core.loading.look_again();
  EXPECT_TRUE(core.loading.unfinished());
  core.loading.looks();
  EXPECT_FALSE(core.loading.unfinished());
}

TEST(PlaceForReplica, IsADeviceWhereTheModelIsNotAndNobodyHasToEnd) {
  TestState core(2);
  core.serve(kA);
  ASSERT_TRUE(place_for_replica(core.state, kA));
  EXPECT_EQ(place_for_replica(core.state, kA)->device, kOther);
  EXPECT_TRUE(place_for_replica(core.state, kA)->victims.empty());
  EXPECT_GT(place_for_replica(core.state, kA)->load_takes, 0s);
  core.serve(kB, kOther);
  core.serve(kC, kOther);
  EXPECT_EQ(place_for_replica(core.state, kA)->victims.size(), 1U) << "an idle model goes";
  core.run(kB, kOther);
  core.run(kC, kOther);
  EXPECT_FALSE(place_for_replica(core.state, kA)) << "requests would have to end";
}

TEST(PlaceForReplica, IsNeitherAGroupsNorADeviceThatIsDown) {
  TestState core(3);
  core.add_group();
  core.serve_group();
  ASSERT_TRUE(place_for_replica(core.state, kA));
  EXPECT_EQ(place_for_replica(core.state, kA)->device, DeviceId(2));
  core.devices.down(DeviceId(2));
  EXPECT_FALSE(place_for_replica(core.state, kA));
}

TEST(PlaceForReplica, CountsWhatIsLostWithItsVictims) {
  TestState core(1, {.value = true});
  core.serve(kB);
  core.serve(kC);
  for (const ModelId model : {kB, kC}) {
    core.finish(core.run(model));
    core.pass(1s);
  }
  const auto place = place_for_replica(core.state, kA);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->victims.size(), 1U);
  EXPECT_GT(place->lost, 0);
}

}  // namespace
}  // namespace heddle::core::manager
