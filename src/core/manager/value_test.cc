#include "core/manager/value.h"

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
using test::TestState;

TEST(Value, AnInstanceIsBusyWithItsOwnRequestsAndWithThoseThatWaitForItsModel) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  EXPECT_FALSE(busy(core.state, kA, core.at(kA)));
  const RequestId id = core.run(kA);
  EXPECT_TRUE(busy(core.state, kA, core.at(kA)));
  EXPECT_FALSE(busy(core.state, kA, core.at(kA, kOther)));
  core.queues.requeue(id);
  EXPECT_TRUE(busy(core.state, kA, core.at(kA, kOther)));
}

TEST(Value, AModelIsActiveUntilTheUsualTimeToItsNextRequestIsOver) {
  TestState core;
  core.serve(kA);
  for (int i = 0; i < 10; ++i) {
    core.finish(core.run(kA));
    core.pass(2s);
  }
  EXPECT_TRUE(active(core.state, core.model(kA)));
  core.pass(2s);
  EXPECT_FALSE(active(core.state, core.model(kA)));
  core.wait(kA);
  core.pass(1h);
  EXPECT_TRUE(active(core.state, core.model(kA))) << "it has a request";
}

TEST(Value, ALoadTakesWhatItTookElseWhatItsBytesTake) {
  TestState core;
  EXPECT_EQ(load_time(core.state, core.model(kA), core.device()), 80ms) << "80 MB at 1 GB/s";
  core.device().load_rate = 40e6;
  EXPECT_EQ(load_time(core.state, core.model(kA), core.device()), 2s);
  core.model(kA).load_times = {5s, 1s};
  EXPECT_EQ(load_time(core.state, core.model(kA), core.device()), 5s) << "from disk";
  core.model(kA).images[HostId(1)].cached = true;
  EXPECT_EQ(load_time(core.state, core.model(kA), core.device()), 5s) << "another host has it";
  core.model(kA).images[HostId(0)].cached = true;
  EXPECT_EQ(load_time(core.state, core.model(kA), core.device()), 1s);
  core.model(kB).config.image_bytes = 0;
  EXPECT_GT(load_time(core.state, core.model(kB), core.device()), 0s);
}

TEST(Value, TheLeadIsTheLongestLoadOfAModelOfOursAndAPeriod) {
  TestState core;
  core.add_engine();
  core.model(kA).load_times[0] = 5s;
  core.model(kEngine).load_times[0] = 9s;
  EXPECT_EQ(lead(core.state), 5500ms);
}

/// A model that is asked for every two seconds, on the first device, and values that count.
struct Used : TestState {
  explicit Used(bool value = true) : TestState(2, {.value = value}) {
    serve(kA);
    for (int i = 0; i < 10; ++i) {
      finish(run(kA));
      pass(2s);
    }
    finish(run(kA));
  }
};

TEST(Value, TheWorthOfTheOnlyInstanceIsWhatItsReturnWouldCost) {
  Used core;
  const double once = worth(core.state, core.device(), kA);
  EXPECT_GT(once, 0);
  core.model(kA).load_times[0] = 2 * load_time(core.state, core.model(kA), core.device());
  EXPECT_GT(worth(core.state, core.device(), kA), 1.5 * once);
  core.serve(kB);
  EXPECT_LT(worth(core.state, core.device(), kB), once) << "nobody has asked for it";
}

TEST(Value, OfSeveralInstancesOnlyAForecastCanWantTheLast) {
  Used core;
  core.serve(kA, kOther);
  EXPECT_EQ(worth(core.state, core.device(), kA), 0);
  core.residency.drain(kOther, kA);
  EXPECT_GT(worth(core.state, core.device(), kA), 0) << "the other leaves";
}

TEST(Value, WithoutValuesAndOfEnginesNothingIsWorthAnything) {
  Used without(false);
  EXPECT_EQ(worth(without.state, without.device(), kA), 0);
  Used core;
  core.add_engine();
  core.serve(kEngine);
  core.finish(core.run(kEngine));
  EXPECT_EQ(worth(core.state, core.device(), kEngine), 0);
}

TEST(Value, AShardIsWorthItsGroupAndNothingWithoutTheOthers) {
  TestState core(2, {.value = true});
  core.add_group();
  core.stage(kGroup);
  core.demand.arrived(kGroup, 8);
  core.demand.left(kGroup, 1s);
  EXPECT_EQ(worth(core.state, core.device(), kGroup), 0);
  core.stage(kShard);
  EXPECT_GT(worth(core.state, core.device(), kGroup), 0);
  EXPECT_EQ(worth(core.state, core.device(kOther), kShard),
            worth(core.state, core.device(), kGroup));
}

TEST(Value, WhatIsMissingOfAGroupIsTheLongestOfItsShards) {
  TestState core(2);
  core.add_group();
  core.model(kGroup).load_times[0] = 4s;
  EXPECT_EQ(missing(core.state, kGroup, kDevice), 4s);
  core.stage(kGroup);
  EXPECT_EQ(missing(core.state, kGroup, kDevice), 4s) << "the other one is not there";
  core.stage(kShard, false);
  core.pass(3s);
  EXPECT_EQ(missing(core.state, kGroup, kDevice), 1s);
  core.pass(3s);
  EXPECT_EQ(missing(core.state, kGroup, kDevice), 0s) << "late, it may come any moment";
  core.at(kShard, kOther).complete = true;
  EXPECT_EQ(missing(core.state, kGroup, kDevice), 0s);
}

TEST(Value, KvGrowsWithTheTokensThatAreAskedForSharedByAllInstances) {
  TestState core(2);
  core.add_engine();
  core.serve(kA);
  EXPECT_EQ(kv_growth(core.state, kA, core.device()), 0);
  core.wait(kA, 80);
  const double alone = kv_growth(core.state, kA, core.device());
  EXPECT_GT(alone, 0);
  core.serve(kA, kOther);
  EXPECT_DOUBLE_EQ(kv_growth(core.state, kA, core.device()), alone / 2);
  core.wait(kEngine, 80);
  EXPECT_EQ(kv_growth(core.state, kEngine, core.device()), 0);
}

TEST(Value, PressureCountsModelsThatAreInUseAndWhoComes) {
  TestState core(1, {.pressure = true});
  core.serve(kA);
  core.wait(kA, 80);
  core.wait(kB, 80);
  const double both = pressure(core.state, core.device(), kB);
  core.queues.fail_waiting(kA, {Code::kCancelled, ""}, 0);
  core.pass(1h);  // It is idle now, and what was asked for is long ago.
  core.wait(kB, 80);
  const double one = pressure(core.state, core.device(), kB);
  EXPECT_GT(one, 0);
  EXPECT_GT(both, one);
  core.state.options.planner.pressure = false;
  EXPECT_EQ(pressure(core.state, core.device(), kB), 0);
}

}  // namespace
}  // namespace heddle::core::manager
