#include "core/manager/demand.h"

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
using test::kUnknown;
using test::TestState;

/// How the first request of the model would find it.
StartKind start(TestState& core, ModelId model) {
  const auto before = core.model(model).starts;
  core.demand.count_start(model);
  for (std::size_t kind = 0; kind < kStartKinds; ++kind) {
    if (core.model(model).starts.at(kind) > before.at(kind)) {
      return static_cast<StartKind>(kind);
    }
  }
  ADD_FAILURE() << "not counted";
  return StartKind::kMiss;
}

TEST(Demand, AStartIsAsTheFirstRequestFindsTheModel) {
  TestState core;
  EXPECT_EQ(start(core, kA), StartKind::kMiss);
  core.load(kA);
  EXPECT_EQ(start(core, kA), StartKind::kAttach);
  core.residency.serve(kDevice, kA);
  EXPECT_EQ(start(core, kA), StartKind::kAttach) << "its weights still come";
  core.serve(kA);
  EXPECT_EQ(start(core, kA), StartKind::kWarm);
  core.residency.drain(kDevice, kA);
  EXPECT_EQ(start(core, kA), StartKind::kMiss);
}

TEST(Demand, AModelThatWasPrewarmedIsHitOnceAndThenWarm) {
  TestState core;
  core.load(kA, kDevice, LoadReason::kForecast);
  core.serve(kA);
  EXPECT_EQ(start(core, kA), StartKind::kHit);
  core.finish(core.run(kA));
  EXPECT_EQ(start(core, kA), StartKind::kWarm);
}

TEST(Demand, TheBestOfSeveralInstancesCounts) {
  TestState core(2);
  core.load(kA);
  core.serve(kA, kOther);
  EXPECT_EQ(start(core, kA), StartKind::kWarm);
}

TEST(Demand, AnEngineThatServesIsWarmAndOneThatStandsByIsNot) {
  TestState core;
  core.add_engine();
  core.serve(kEngine).complete = false;
  EXPECT_EQ(start(core, kEngine), StartKind::kWarm) << "nobody says when its weights are there";
  core.residency.suspend(kDevice, kEngine, 0);
  EXPECT_EQ(start(core, kEngine), StartKind::kMiss);
}

TEST(Demand, AGroupIsHitWhenAllItsStagedShardsAreComplete) {
  TestState core(2);
  core.add_group();
  EXPECT_EQ(start(core, kGroup), StartKind::kMiss);
  core.stage(kGroup);
  EXPECT_EQ(start(core, kGroup), StartKind::kAttach);
  core.stage(kShard);
  EXPECT_EQ(start(core, kGroup), StartKind::kHit);
}

TEST(Demand, LoadTimesAreLearntForEachTierAndSmoothed) {
  TestState core;
  const auto learn = [&core](Duration took, bool cached) {
    core.model(kA).images[HostId(0)].cached = cached;
    core.load(kA);
    core.pass(took);
    core.demand.learn_load(kDevice, kA);
    core.residency.forget(kDevice, kA);
  };
  learn(4s, false);
  EXPECT_EQ(core.model(kA).load_times[0], 4s);
  EXPECT_EQ(core.model(kA).load_times[1], 0s);
  EXPECT_EQ(core.device().load_rate, 0) << "of a link to the host that says nothing";
  learn(1s, true);
  EXPECT_EQ(core.model(kA).load_times[1], 1s);
  EXPECT_DOUBLE_EQ(core.device().load_rate, 80e6) << "80 MB in a second";
  learn(2s, true);
  EXPECT_EQ(core.model(kA).load_times[1], 1300ms) << "three tenths of what is new";
  EXPECT_EQ(core.model(kA).load_times[0], 4s);
}

TEST(Demand, AGroupsLoadIsLearntWhereAllItsShardsWereBegunTogether) {
  TestState core(2);
  core.add_group();
  core.load_group();
  core.pass(2s);
  core.at(kShard, kOther).complete = true;
  core.demand.learn_load(kOther, kShard);
  EXPECT_EQ(core.model(kGroup).load_times[0], 0s) << "rank 0 is not there yet";
  core.pass(1s);
  core.at(kGroup).complete = true;
  core.demand.learn_load(kDevice, kGroup);
  EXPECT_EQ(core.model(kGroup).load_times[0], 3s);

  TestState apart(2);
  apart.add_group();
  apart.stage(kShard);
  apart.pass(1s);
  apart.stage(kGroup);
  apart.pass(1s);
  apart.demand.learn_load(kDevice, kGroup);
  EXPECT_EQ(apart.model(kGroup).load_times[0], 0s) << "only a part of it was loaded";
}

TEST(Demand, AnEngineIsLearntToStartAndToComeBack) {
  TestState core;
  core.add_engine();
  core.load(kEngine);
  core.pass(9s);
  core.demand.learn_load(kDevice, kEngine);
  EXPECT_EQ(core.model(kEngine).load_times[0], 9s);
  core.residency.serve(kDevice, kEngine);
  core.residency.suspend(kDevice, kEngine, 2);
  core.load(kEngine);
  core.pass(1s);
  core.demand.learn_load(kDevice, kEngine);
  EXPECT_EQ(core.model(kEngine).load_times[0], 9s);
  EXPECT_EQ(core.model(kEngine).load_times[1], 1s);
  EXPECT_EQ(core.device().load_rate, 0) << "of weights that says nothing";
}

TEST(Demand, WhatWasPrewarmedAndNotUsedWasWasted) {
  TestState core(2);
  core.add_group();
  core.load(kA, kDevice, LoadReason::kForecast);
  core.demand.count_waste(kDevice, kA);
  EXPECT_EQ(core.model(kA).wasted_bytes, core.model(kA).config.image_bytes);
  core.at(kA).used = true;
  core.demand.count_waste(kDevice, kA);
  core.load(kB);
  core.demand.count_waste(kDevice, kB);
  EXPECT_EQ(core.model(kA).wasted_bytes, core.model(kA).config.image_bytes);
  EXPECT_EQ(core.model(kB).wasted_bytes, 0U) << "somebody had asked for it";
  core.stage(kShard);
  core.demand.count_waste(kOther, kShard);
  EXPECT_EQ(core.model(kGroup).wasted_bytes, core.model(kShard).config.image_bytes)
      << "the whole model is listed";
}

TEST(Demand, AModelIsUsedWhenARequestComesAndWhenItLeaves) {
  TestState core;
  core.pass(1s);
  core.demand.arrived(kA, 8);
  const Instant arrival = core.state.now;
  core.pass(1s);
  core.demand.left(kA, 1s);
  EXPECT_EQ(core.model(kA).last_arrival, arrival);
  EXPECT_EQ(core.model(kA).last_used, core.state.now);
  EXPECT_EQ(core.model(kA).demand.in_system(), 0);
  EXPECT_GT(core.demand.load(kA), 0);
}

TEST(Demand, WhenAWindowEndsItsLoadIsSaidOfWholeModelsOnce) {
  TestState core(2);
  core.add_group();
  core.demand.turn_window();
  EXPECT_TRUE(core.all<LoadMeasured>().empty()) << "none has ended";
  core.demand.arrived(kA, 8);
  core.pass(10s);
  core.demand.turn_window();
  core.demand.turn_window();
  std::vector<ModelId> measured;
  for (const LoadMeasured& each : core.all<LoadMeasured>()) {
    measured.push_back(each.model);
    EXPECT_EQ(each.window, 10);
    EXPECT_EQ(each.load.mean, each.model == kA ? 1 : 0);
  }
  EXPECT_EQ(measured, (std::vector{kA, kB, test::kC, kGroup}));
}

TEST(Demand, WhatAnEarlierManagerMeasuredIsForecastFrom) {
  TestState core;
  LoadRemembered remembered{.model = kA};
  for (std::int64_t window = 0; window < 10; ++window) {
    remembered.windows.push_back({window, {.mean = 2, .peak = 3}});
  }
  core.demand.remember(remembered);
  EXPECT_NEAR(core.model(kA).demand.expected().load.mean, 2, 0.1);
  core.demand.remember({.model = kA, .windows = {{4, {.mean = 9, .peak = 9}}}});
  EXPECT_EQ(core.model(kA).demand.history().at(4)->mean, 2) << "what is known is not overwritten";
  core.demand.remember({.model = kUnknown});
}

// A host may come with what an earlier manager measured when this one has measured for a while.
TEST(Demand, WhatComesLateIsEnteredBeforeWhatWasMeasuredSince) {
  TestState core;
  const auto past = [](std::int64_t from, std::int64_t to, double mean) {
    LoadRemembered remembered{.model = kA};
    for (std::int64_t window = from; window < to; ++window) {
      remembered.windows.push_back({window, {.mean = mean, .peak = mean}});
    }
    return remembered;
  };
  core.demand.remember(past(30, 33, 5));
  core.demand.remember(past(20, 32, 2));
  const policy::LoadHistory& history = core.model(kA).demand.history();
  EXPECT_EQ(history.newest(), 32);
  EXPECT_FALSE(history.at(19));
  EXPECT_EQ(history.at(20)->mean, 2);
  EXPECT_EQ(history.at(29)->mean, 2);
  EXPECT_EQ(history.at(31)->mean, 5) << "what is known is not overwritten";
  EXPECT_EQ(history.at(32)->mean, 5) << "nor forgotten";
  const std::int64_t remembers = history.windows_per_day() * (history.days() + 1);
  core.demand.remember(past(100 + remembers, 101 + remembers, 1));
  core.demand.remember(past(20, 103, 7));
  EXPECT_FALSE(history.at(100)) << "that long ago nothing is remembered";
  EXPECT_EQ(history.at(102)->mean, 7);
  EXPECT_EQ(history.newest(), 100 + remembers);
}

TEST(Demand, WarmAnswersMakeTheObjectives) {
  TestState core;
  core.demand.observe_warm(kA, 100ms, 10ms);
  EXPECT_EQ(core.model(kA).objectives(), (policy::Objectives{.ttft = 500ms, .tpot = 20ms}));
}

}  // namespace
}  // namespace heddle::core::manager
