#include "core/manager/models.h"

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
using test::kShard;
using test::TestState;

TEST(Models, AReplicaIdTellsItsDeviceAndItsModel) {
  const policy::ReplicaId id = replica_id(DeviceId(7), ModelId(9));
  EXPECT_EQ(device_of(id), DeviceId(7));
  EXPECT_EQ(model_of(id), ModelId(9));
  EXPECT_NE(replica_id(DeviceId(0), ModelId(1)), replica_id(DeviceId(1), ModelId(0)));
}

TEST(Models, ABlockIsTheDevicesOfAGroupByRankOrOneDevice) {
  TestState core(4);
  core.add_group();
  EXPECT_EQ(block(core.state, kGroup, DeviceId(2)),
            (std::vector<ShardPlace>{{kGroup, DeviceId(2)}, {kShard, DeviceId(3)}}));
  EXPECT_EQ(block(core.state, kA, kOther), (std::vector<ShardPlace>{{kA, kOther}}));
  EXPECT_EQ(whole(core.state, kShard), kGroup);
  EXPECT_EQ(whole(core.state, kGroup), kGroup);
  EXPECT_EQ(whole(core.state, kA), kA);
}

TEST(Models, WhatAModelDisplacesIsItsOwn) {
  TestState core;
  core.model(kA).config.displaces = {kB, kC};
  EXPECT_TRUE(displaces(core.model(kA), kC));
  EXPECT_FALSE(displaces(core.model(kB), kA));
}

TEST(Models, APinnedModelStaysUntilItIsRemovedAndAllStayWhereNoneMayGo) {
  TestState core;
  EXPECT_FALSE(stays(core.state, core.model(kA)));
  core.model(kA).config.pin = true;
  EXPECT_TRUE(stays(core.state, core.model(kA)));
  core.remove(kA);
  EXPECT_FALSE(stays(core.state, core.model(kA)));
  core.state.options.planner.evict = false;
  EXPECT_TRUE(stays(core.state, core.model(kB)));
}

TEST(Models, TheLongestWaitIsOfThoseThatAreNotInFlight) {
  TestState core;
  EXPECT_EQ(longest_waiting(core.state, core.model(kA)), 0);
  core.wait(kA, 30);
  core.wait(kA, 20);
  core.serve(kA);
  core.queues.send(core.wait(kA, 80), kDevice, std::nullopt);
  EXPECT_EQ(longest_waiting(core.state, core.model(kA)), 30);
}

TEST(Models, AnEngineHoldsWhatIsConfiguredElseWhatItWasSeenToHoldElseSomething) {
  TestState core;
  core.add_engine();
  EXPECT_EQ(engine_pages(core.model(kEngine), kDevice), test::kEnginePages);
  set_image_pages(core, kEngine, kDevice, 0);
  EXPECT_EQ(engine_pages(core.model(kEngine), kDevice), 1);
  core.model(kEngine).learned_pages = 7;
  EXPECT_EQ(engine_pages(core.model(kEngine), kDevice), 7);
}

/// An engine that takes a second to bring back came two seconds ago.
struct Stay : TestState {
  Stay() {
    add_engine();
    model(kEngine).swap_in = 1s;
    load(kEngine);
    serve(kEngine);
    pass(2s);
  }
  Duration stay() { return residence(model(kEngine), at(kEngine)); }
};

TEST(Models, ABusyEngineStaysForThreeTimesWhatBringingItBackTakes) {
  Stay core;
  core.run(kEngine);
  EXPECT_EQ(core.stay(), 3s);
  core.model(kEngine).config.min_residence = 7s;
  EXPECT_EQ(core.stay(), 7s);
}

TEST(Models, AnIdleEngineMayGoAtOnceIfNobodyAskedSinceItCame) {
  Stay core;
  EXPECT_EQ(core.stay(), 0s);
}

TEST(Models, AnIdleEngineStaysAHalfOfBringingItBackAfterItsLastUseButNotForEver) {
  Stay core;
  core.finish(core.run(kEngine));
  EXPECT_EQ(core.stay(), 2500ms);
  core.pass(2s);
  core.finish(core.run(kEngine));
  EXPECT_EQ(core.stay(), 3s) << "no longer than a busy one";
}

// Texts for people; other tests look at codes and reasons.
TEST(Models, TextsForPeople) {
  TestState core(2);
  core.add_engine(30);
  EXPECT_EQ(names(core.state, {}), "");
  EXPECT_EQ(names(core.state, {kA}), "a");
  EXPECT_EQ(names(core.state, {kA, kB}), "a and b");
  EXPECT_EQ(names(core.state, {kA, kB, kC}), "a, b and c");
  EXPECT_EQ(number(0.123), "0.12");
  EXPECT_EQ(number(12.7), "13");
  EXPECT_EQ(who_waits(core.model(kA)), "an operator wants it");
  core.wait(kA);
  EXPECT_EQ(who_waits(core.model(kA)), "a request waits");
  core.wait(kA);
  EXPECT_EQ(who_waits(core.model(kA)), "2 requests wait");
  EXPECT_EQ(too_large(core.state, core.model(kEngine)),
            "model 'engine' needs 30 pages of memory; its device, d0, has 20");
  set_image_pages(core, kA, kDevice, 40);
  set_image_pages(core, kA, kOther, 30);
  core.device(kOther).config.pages = 25;
  EXPECT_EQ(too_large(core.state, core.model(kA)),
            "model 'a' needs " + policy::describe(core.model(kA).footprints.at(kOther)) +
                " of memory; the largest device, d1, has 25");
  core.model(kA).footprints = {};
  EXPECT_EQ(too_large(core.state, core.model(kA)), "model 'a' has no device that may hold it");
}

}  // namespace
}  // namespace heddle::core::manager
