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

TEST(Value, AnEngineComesBackAsItsHostMeasuredAndStartsAsWasSeen) {
  TestState core;
  core.add_engine();
  ModelState& engine = core.model(kEngine);
  const auto takes = [&] { return load_time(core.state, engine, core.device()); };
  EXPECT_EQ(takes(), kEngineStart);
  engine.swap_in = 2s;
  EXPECT_EQ(takes(), 2s);
  engine.load_times = {9s, 3s};
  EXPECT_EQ(takes(), 9s) << "it has to be started";
  core.serve(kEngine);
  EXPECT_EQ(takes(), 2s);
  core.residency.suspend(kDevice, kEngine, 1);
  EXPECT_EQ(takes(), 2s);
  engine.swap_in = 0s;
  EXPECT_EQ(takes(), 3s);
  engine.load_times[1] = 0s;
  EXPECT_EQ(takes(), 9s) << "no sooner than that";
  EXPECT_EQ(LoadTimes(core.state, engine).on(core.device()), 9s);
}

/// Somebody asked for the engine in all windows so far.
void expect_engine(TestState& core) {
  core.add_engine();
  LoadRemembered remembered{.model = kEngine};
  for (std::int64_t window = 0; window < 10; ++window) {
    remembered.windows.emplace_back(window, policy::Load{.mean = 0.5, .peak = 1});
  }
  core.demand.remember(remembered);
}

TEST(Value, TheLeadIsTheLongestLoadAndAPeriodWithEnginesThatAreExpected) {
  TestState core;
  expect_engine(core);
  core.model(kA).load_times[0] = 5s;
  core.model(kEngine).load_times[0] = 4s;
  EXPECT_EQ(lead(core.state), 5500ms);
  core.model(kEngine).load_times[0] = 9s;
  EXPECT_EQ(lead(core.state), 9500ms);
  TestState unused;
  unused.add_engine();
  unused.model(kA).load_times[0] = 5s;
  unused.model(kEngine).load_times[0] = 9s;
  EXPECT_EQ(lead(unused.state), 5500ms) << "nothing is to be done for the engine";
}

TEST(Value, WhatAnEngineInTheWayTakesToLeaveIsPartOfTheLead) {
  TestState core;
  expect_engine(core);
  core.model(kA).load_times[0] = 5s;
  core.model(kEngine).load_times[0] = 4s;
  core.model(kEngine).swap_out = 2s;
  EXPECT_EQ(lead(core.state), 8s) << "it is seen to have left at the next look";
  EXPECT_EQ(lead(core.state, core.model(kA), core.device()), 5500ms) << "it is not there";
  core.serve(kEngine);
  reindex(core.state);
  EXPECT_EQ(leaving_time(core.state, core.device(), kA), 2s);
  EXPECT_EQ(lead(core.state, core.model(kA), core.device()), 8s);
  EXPECT_EQ(leaving_time(core.state, core.device(), kEngine), 0s);
  core.residency.suspend(kDevice, kEngine, 1);
  EXPECT_EQ(leaving_time(core.state, core.device(), kA), 0s);
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

TEST(Value, WithoutValuesNothingIsWorthAnything) {
  Used without(false);
  without.add_engine();
  without.serve(kEngine);
  without.model(kEngine).swap_out = 1s;
  EXPECT_EQ(worth(without.state, without.device(), kA), 0);
  EXPECT_EQ(worth(without.state, without.device(), kEngine), 0);
}

TEST(Value, AnEngineIsWorthItsSwapsAsLikelyAsItIsNeeded) {
  TestState core(1, {.value = true});
  core.add_engine();
  core.serve(kEngine);
  ModelState& engine = core.model(kEngine);
  engine.config.slo.ttft = 100ms;  // Each wait counts in full.
  engine.swap_out = 2s;
  engine.swap_in = 5s;
  const auto now = [&] { return worth(core.state, core.device(), kEngine); };
  const auto to_waiting = [&] { return worth_to_waiting(core.state, core.device(), kEngine); };
  for (int i = 0; i < 10; ++i) {
    core.finish(core.run(kEngine));
    core.pass(1s);
  }
  EXPECT_GT(now(), 6.9) << "it is asked for all the time";
  EXPECT_LE(to_waiting(), 7);
  EXPECT_GE(to_waiting(), now());
  core.pass(60s);
  EXPECT_LT(now(), 2);
  core.pass(1000h);
  EXPECT_NEAR(now(), 0, 0.01) << "nobody asks for it any more";
  EXPECT_NEAR(to_waiting(), 2, 0.01) << "who wants its place waits until it has left";
  core.serve(kA);
  EXPECT_EQ(worth_to_waiting(core.state, core.device(), kA), worth(core.state, core.device(), kA));
}

TEST(Value, AnEngineAndAModelOfOursThatAreNeededAlikeAreWorthWhatTheirReturnTakes) {
  TestState core(1, {.value = true});
  core.add_engine();
  core.serve(kEngine);
  core.serve(kA);
  for (const ModelId each : {kA, kEngine}) {
    core.model(each).config.slo.ttft = 100ms;
    core.model(each).load_times = {5s, 5s};
  }
  for (int i = 0; i < 10; ++i) {
    for (const ModelId each : {kA, kEngine}) {
      core.finish(core.run(each));
    }
    core.pass(3s);
  }
  EXPECT_NEAR(
      worth(core.state, core.device(), kEngine), worth(core.state, core.device(), kA), 1e-9);
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
