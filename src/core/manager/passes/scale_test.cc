#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_cuts.h"

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

/// Over which a model's load is averaged.
constexpr Duration kLoadTime = 5s;

/// So many requests for a model on the first device, for long enough to be its load; a device
/// should bear four.
struct Loaded : TestState {
  Loaded(int count, int requests, PlannerOptions planner = {}) : TestState(count, planner) {
    serve(kA);
    for (int i = 0; i < requests; ++i) {
      running.push_back(run(kA));
    }
    pass(kLoadTime);
  }
  std::vector<RequestId> running{};
};

// ---- One more ----

TEST(Scale, AModelWithMoreLoadThanItsInstanceShouldBearGetsOneMore) {
  Loaded core(2, 4);
  scale(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.at(kA, kOther).why, LoadReason::kLoad);
}

TEST(Scale, AModelWithLessDoesNot) {
  Loaded core(2, 3);
  scale(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Scale, AnInstanceThatIsOnItsWayCounts) {
  Loaded core(3, 4);
  core.load(kA, kOther);
  core.commands.clear();
  scale(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Scale, AModelThatStartedInStagesHasOneWholeFirst) {
  test::FourHosts core;
  const DeviceId fifth = core.add_device();
  core.start_in_stages();
  for (int i = 0; i < 8; ++i) {
    core.wait(kA);
  }
  core.passes();
  core.pass(kLoadTime);
  core.commands.clear();
  scale(core.parts);
  EXPECT_TRUE(core.loads().empty()) << "one is on its way";
  core.arrive_all();
  core.pass(kLoadTime);
  scale(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{fifth, kA}})) << "where no stage is";
}

TEST(Scale, AnInstanceThatIsSparedIsTakenBackFirst) {
  Loaded core(3, 4);
  core.serve(kA, kOther);
  core.residency.spare(kOther, kA, true);
  scale(core.parts);
  EXPECT_FALSE(core.at(kA, kOther).spare);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Scale, WhoHasNoRequestsNeedsNoMoreWhateverItsLoadHasBeen) {
  Loaded core(2, 4);
  for (const RequestId id : core.running) {
    core.finish(id);
  }
  ASSERT_GT(core.demand.load(kA), 3.2);
  scale(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Scale, OthersAreNotHarmedForItBeyondWhatItsRequestsWouldWait) {
  for (const bool precious : {true, false}) {
    Loaded core(2, 4, {.value = true});
    for (const ModelId model : {kB, kC}) {
      core.serve(model, kOther);
      core.model(model).load_times[0] = precious ? 60s : 100ms;
      core.finish(core.run(model, kOther));
    }
    scale(core.parts);
    EXPECT_EQ(core.loads().empty(), precious);
  }
}

TEST(Scale, WhatWasActedOnAMomentAgoIsLeftAlone) {
  Loaded core(2, 4);
  core.loading.hold({.model = kA});
  scale(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Scale, AShardedModelGetsOneMoreBlock) {
  TestState core(4);
  core.add_group();
  core.serve_group();
  for (int i = 0; i < 4; ++i) {
    core.run(kGroup);
  }
  core.pass(kLoadTime);
  scale(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{DeviceId(2), kGroup}, {DeviceId(3), test::kShard}}));
  EXPECT_EQ(core.at(kGroup, DeviceId(2)).why, LoadReason::kLoad);
}

TEST(Scale, AnEngineAndARemovedModelHaveWhatTheyHave) {
  TestState engine(2);
  engine.add_engine();
  set_need(engine, kEngine, kOther, {.image_pages = 12});
  engine.serve(kEngine);
  TestState removed(2);
  removed.serve(kA);
  for (int i = 0; i < 4; ++i) {
    engine.run(kEngine);
    removed.run(kA);
  }
  removed.remove(kA);
  for (TestState* core : {&engine, &removed}) {
    core->pass(kLoadTime);
    scale(core->parts);
    EXPECT_TRUE(core->loads().empty());
  }
}

// ---- One less ----

/// A model on two devices, whose one request is on the second.
struct Twice : TestState {
  Twice() : TestState(2) {
    serve(kA);
    serve(kA, kOther);
    run(kA, kOther);
  }
};

TEST(Scale, OfInstancesWithTooLittleLoadTheOneWithTheFewestRequestsIsSpared) {
  Twice core;
  core.pass(kLoadTime);
  scale(core.parts);
  EXPECT_TRUE(core.at(kA).spare);
  EXPECT_FALSE(core.at(kA, kOther).spare);
  EXPECT_TRUE(core.evictions().empty()) << "it goes when another model wants its pages";
}

TEST(Scale, AnInstanceIsNotSparedSoonAfterItCame) {
  Twice core;
  core.pass(kLoadTime - 1s);
  scale(core.parts);
  EXPECT_FALSE(core.at(kA).spare);
}

TEST(Scale, TheLastInstanceIsNotSparedWhenTheOtherIsSparedAlready) {
  Twice core;
  core.residency.spare(kOther, kA, true);
  core.pass(kLoadTime);
  scale(core.parts);
  EXPECT_FALSE(core.at(kA).spare);
}

TEST(Scale, TheOnlyInstanceIsNotSparedWhenItsFirstRequestCannotBeSeenInItsLoadYet) {
  TestState core;
  core.serve(kA);
  core.pass(kLoadTime);
  core.run(kA);
  ASSERT_EQ(core.demand.load(kA), 0);
  scale(core.parts);
  EXPECT_FALSE(core.at(kA).spare);
}

}  // namespace
}  // namespace heddle::core::manager
