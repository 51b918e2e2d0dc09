#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
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
using test::Spots;
using test::TestState;

constexpr DeviceId kThird{2};
const PlannerOptions kValue{.prewarm = true, .value = true};
const Spots kBlock{{kDevice, kGroup}, {kOther, kShard}};

/// All windows of the model so far had this load, so that the present one is expected to.
void foresee(TestState& core, ModelId model, policy::Load load = {.mean = 0.5, .peak = 1}) {
  LoadRemembered remembered{.model = model};
  for (std::int64_t window = 0; window < 10; ++window) {
    remembered.windows.emplace_back(window, load);
  }
  core.demand.remember(remembered);
}

/// A request now and then is expected of a model, which takes four seconds to load; a device should
/// bear four at once.
struct Foreseen : TestState {
  explicit Foreseen(int count = 1, PlannerOptions planner = kValue) : TestState(count, planner) {
    foresee(*this, kA);
    model(kA).load_times[0] = 4s;
  }
};

// ---- What is loaded ----

TEST(Prewarm, WhatIsExpectedIsLoadedBeforeAnybodyAsksAndNothingElseIs) {
  Foreseen core;
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.at(kA).why, LoadReason::kForecast);
  EXPECT_FALSE(core.at(kA).staged());
  EXPECT_EQ(core.decisions(DecisionKind::kPrewarm).size(), 1U);
  EXPECT_FALSE(core.loading.unfinished());
}

TEST(Prewarm, WhatIsThereOrOnItsWayIsNotLoadedAgain) {
  Foreseen core(2);
  core.device().config.pages = core.device(kOther).config.pages = 10;  // Room for one.
  prewarm(core.parts);
  core.pass(10 * core.state.options.planner.period);
  prewarm(core.parts);
  ASSERT_EQ(core.loads(), (Spots{{kDevice, kA}}));
  core.serve(kA);
  core.pass(10 * core.state.options.planner.period);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Prewarm, AModelGetsAsManyDevicesAsItsLoadIsExpectedToFillOneAfterTheOther) {
  TestState core(3, kValue);
  foresee(core, kB, {.mean = 2, .peak = 3});
  prewarm(core.parts);
  ASSERT_EQ(core.loads(), (Spots{{kDevice, kB}}));
  EXPECT_TRUE(core.loading.unfinished());
  core.serve(kB);
  core.pass(10 * core.state.options.planner.period);
  prewarm(core.parts);
  ASSERT_EQ(core.loads(), (Spots{{kOther, kB}}));
  core.serve(kB, kOther);
  core.pass(10 * core.state.options.planner.period);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty()) << "it has two";
}

TEST(Prewarm, InstancesThatAreBusyBearALoadAlready) {
  Foreseen core(2);
  core.serve(kA);
  core.run(kA);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
  foresee(core, kB, {.mean = 2, .peak = 3});
  core.serve(kB);
  core.run(kB);
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kB}})) << "one more, not two";
}

TEST(Prewarm, OfAModelThatIsHotTheHighestLoadLatelyStandsForAForecastThatIsWrong) {
  for (const bool hot : {true, false}) {
    TestState core(2, kValue);
    LoadRemembered remembered{.model = kA};
    for (std::int64_t window = 0; window < 10; ++window) {
      remembered.windows.emplace_back(
          window, window % 2 == 0 ? policy::Load{.mean = 4, .peak = 6} : policy::Load{});
    }
    core.demand.remember(remembered);
    core.state.window = 10;
    core.serve(kA);
    for (int i = 0; i < (hot ? 2 : 1); ++i) {
      core.run(kA);
    }
    core.pass(5s);
    prewarm(core.parts);
    EXPECT_EQ(core.loads(), hot ? (Spots{{kOther, kA}}) : Spots{});
  }
}

TEST(Prewarm, AModelIsLoadedOnlyWhereItMayBe) {
  for (const PlannerOptions& planner : {kValue, PlannerOptions{.prewarm = true}}) {
    Foreseen core(3, planner);
    core.model(kA).footprints.erase_if([](DeviceId device) { return device != kOther; });
    prewarm(core.parts);
    EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  }
  Foreseen core(3);
  core.model(kA).footprints.erase_if([](DeviceId device) { return device != kOther; });
  core.plans.begin(kOther, kB, {});
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty()) << "others are no place for it";
}

// ---- What is not ----

TEST(Prewarm, AModelThatWasSentAwayOrCannotBeHadIsNotLoaded) {
  const std::vector<std::function<void(TestState&)>> reasons{
      [](TestState& core) { core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kA}); },
      [](TestState& core) { core.attempts.failed(kA, {Code::kUnavailable, "disk"}); },
      [](TestState& core) { core.model(kA).removed = true; },
      [](TestState& core) { core.model(kA).config.part_of = kB; },
      [](TestState& core) { core.model(kA).footprints = {}; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Foreseen core;
    reasons[i](core);
    prewarm(core.parts);
    EXPECT_TRUE(core.loads().empty()) << i;
  }
}

TEST(Prewarm, ADeviceThatIsWantedForSomethingElseIsNoPlace) {
  const std::vector<std::function<void(TestState&)>> reasons{
      [](TestState& core) { core.devices.down(kDevice); },
      [](TestState& core) { core.plans.begin(kDevice, kB, {}); },
      [](TestState& core) { core.queues.keep_alone(kDevice, RequestId(1)); },
      [](TestState& core) { core.device().claimed = kB; },
      [](TestState& core) { core.devices.pause(kDevice, core.state.now + 1s); }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Foreseen core;
    reasons[i](core);
    prewarm(core.parts);
    EXPECT_TRUE(core.loads().empty()) << i;
  }
}

TEST(Prewarm, OneModelAtATimeIsBroughtToADeviceAndTheNextIsLookedAtSoon) {
  Foreseen loads;
  loads.load(kB);
  Foreseen comes;
  comes.serve(kB).complete = false;
  for (Foreseen* core : {&loads, &comes}) {
    core->commands.clear();
    prewarm(core->parts);
    EXPECT_TRUE(core->loads().empty());
    EXPECT_TRUE(core->loading.unfinished());
  }
  Foreseen leaves;
  leaves.load(kB);
  leaves.residency.evict(kDevice, kB, EvictMode::kNow, EvictionReason::kFailed);
  leaves.commands.clear();
  prewarm(leaves.parts);
  EXPECT_EQ(leaves.loads(), (Spots{{kDevice, kA}})) << "what is called off does not come";

  Foreseen engine;
  engine.add_engine();
  engine.device().config.pages = 30;
  engine.serve(kEngine).complete = false;
  prewarm(engine.parts);
  EXPECT_EQ(engine.loads(), (Spots{{kDevice, kA}})) << "of an engine nothing is said";
}

TEST(Prewarm, AModelThatWasActedOnAMomentAgoIsLookedAtSoon) {
  Foreseen core;
  core.loading.hold({.model = kA});
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(core.loading.unfinished());
}

// ---- Who makes room ----

/// Two more models are on the device, and idle; there is no room for a third.
struct Full : Foreseen {
  explicit Full(PlannerOptions planner = kValue) : Foreseen(1, planner) {
    for (const ModelId model : {kB, kC}) {
      serve(model);
    }
    pass(3s);  // For so long the last use of a model says that it is in use.
    foresee(*this, kA);
  }
};

TEST(Prewarm, AModelThatIsWorthLessMakesRoom) {
  Full core;
  prewarm(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kWhenIdle);
  EXPECT_EQ(core.decisions(DecisionKind::kEvict)[0].for_model, kA);
  EXPECT_EQ(core.at(kB).as<Evicting>()->why, EvictionReason::kDisplaced);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

TEST(Prewarm, WhatIsWorthMoreOrBusyOrPinnedOrLeavesDoesNotMakeRoom) {
  const std::vector<std::function<void(TestState&, ModelId)>> reasons{
      [](TestState& core, ModelId id) {
        foresee(core, id);
        core.model(id).load_times[0] = 9s;
      },
      [](TestState& core, ModelId id) { core.model(id).load_times[0] = 1min; },
      [](TestState& core, ModelId id) { core.run(id); },
      [](TestState& core, ModelId id) { core.wait(id); },
      [](TestState& core, ModelId id) { core.model(id).config.pin = true; },
      [](TestState& core, ModelId id) { core.residency.drain(kDevice, id); }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Full core;
    reasons[i](core, kB);
    prewarm(core.parts);
    EXPECT_EQ(core.evictions(), (Spots{{kDevice, kC}})) << i << ", the other one does";
    EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}})) << i;

    Full neither;
    reasons[i](neither, kB);
    reasons[i](neither, kC);
    prewarm(neither.parts);
    EXPECT_TRUE(neither.evictions().empty()) << i;
    EXPECT_TRUE(neither.loads().empty()) << i;
  }
}

TEST(Prewarm, ALoadThatBreaksNoObjectiveIsWorthLess) {
  for (const bool patient : {true, false}) {
    Full core;
    core.model(kA).config.slo.ttft = patient ? 1000s : 10s;
    core.model(kB).load_times[0] = core.model(kC).load_times[0] = 1s;
    prewarm(core.parts);
    EXPECT_EQ(core.loads().empty(), patient);
  }
}

TEST(Prewarm, EachModelHasVictimsOfItsOwn) {
  Foreseen core(2);
  foresee(core, kB);
  core.model(kB).load_times[0] = 4s;
  for (const DeviceId device : {kDevice, kOther}) {
    core.device(device).config.pages = 10;
    core.serve(kC, device);
  }
  core.pass(3s);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions().size(), 2U);
  EXPECT_EQ(core.loads().size(), 2U);
}

TEST(Prewarm, WhereWorthIsLeftOutWhatWasUsedLongestAgoMakesRoom) {
  Full core({.prewarm = true});
  core.finish(core.run(kB));
  core.pass(3s);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kC}}));
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

TEST(Prewarm, WhatAModelThatRunsMayGrowByIsNotFree) {
  Foreseen core;
  core.serve(kB);
  const RequestId id = core.run(kB);
  core.at(kB).kv_pages = 1;
  core.at(kB).kv_peak = 8;
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty()) << "of 11 pages that are free it had 6 lately";
  EXPECT_EQ(core.at(kB).kv_peak, 7) << "that falls with each look";
  core.finish(id);
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
  EXPECT_TRUE(core.evictions().empty());
}

// ---- Sharded models ----

/// A request now and then is expected of a sharded model.
struct Sharded : TestState {
  explicit Sharded(PlannerOptions planner = kValue) : TestState(2, planner) {
    add_group();
    foresee(*this, kGroup);
    model(kGroup).load_times[0] = 4s;
  }
};

TEST(PrewarmGroup, TheShardsOfAModelAreStagedOnTheirBlock) {
  Sharded core;
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), kBlock);
  EXPECT_TRUE(core.at(kGroup).staged());
  EXPECT_FALSE(core.at(kGroup).part().leader);
  EXPECT_TRUE(core.at(kShard, kOther).staged());
  EXPECT_EQ(core.at(kShard, kOther).part().leader, kDevice);
}

TEST(PrewarmGroup, OnlyTheShardThatIsMissingIsLoaded) {
  Sharded core;
  core.stage(kGroup);
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kShard}}));
}

TEST(PrewarmGroup, AShardThatIsBeingEvictedHasToBeGoneFirst) {
  Sharded core;
  core.stage(kShard);
  core.residency.evict(kOther, kShard, EvictMode::kWhenIdle, EvictionReason::kDisplaced);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(PrewarmGroup, WhereNothingIsEvictedNoGroupIsStagedForItCouldNotBeFormed) {
  Sharded core({.prewarm = true, .evict = false});
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(PrewarmGroup, OneBlockIsEnoughWhateverTheLoad) {
  TestState core(4, kValue);
  core.add_group();
  foresee(core, kGroup, {.mean = 30, .peak = 40});
  core.model(kGroup).load_times[0] = 4s;
  prewarm(core.parts);
  ASSERT_EQ(core.loads(), kBlock);
  core.stage(kGroup);
  core.stage(kShard);
  core.pass(10 * core.state.options.planner.period);
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(PrewarmGroup, ABlockWhereARequestRunsIsTakenOnlyIfThereIsNoOther) {
  TestState core(4, kValue);
  core.add_group();
  core.model(kGroup).load_times[0] = 4s;
  core.serve(kB);
  core.model(kB).load_times[0] = 1us;  // It is worth less than the other, but in use.
  core.run(kB);
  core.serve(kC, kThird);
  core.model(kC).load_times[0] = 1s;
  core.pass(3s);
  foresee(core, kGroup);
  prewarm(core.parts);
  EXPECT_TRUE(core.there(kGroup, kThird));
  EXPECT_TRUE(core.evictions().empty()) << "the shards lie beside others";
}

TEST(PrewarmGroup, WhatIsLeftOfAGroupGivesItsRoom) {
  Foreseen core(2);
  core.add_group();
  core.devices.down(kDevice);
  core.stage(kShard);
  core.serve(kB, kOther);
  core.run(kB, kOther);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kShard}}));
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(PrewarmGroup, WhatIsLeftOfAGroupStaysWhereItsRoomIsNotWanted) {
  Foreseen core(2);
  core.add_group();
  core.devices.down(kDevice);
  core.stage(kShard);
  prewarm(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(PrewarmGroup, OfAStagedGroupOnlyTheShardInTheWayGoes) {
  Foreseen core(2);
  core.add_group();
  core.stage(kGroup);
  core.stage(kShard);
  for (const DeviceId device : {kDevice, kOther}) {
    core.serve(device == kDevice ? kB : kC, device);
    core.run(device == kDevice ? kB : kC, device);
  }
  core.pass(3s);
  foresee(core, kA);
  prewarm(core.parts);
  ASSERT_EQ(core.evictions().size(), 1U);
  ASSERT_EQ(core.loads().size(), 1U);
  EXPECT_EQ(core.evictions()[0].first, core.loads()[0].first);
}

TEST(PrewarmGroup, AGroupThatIsWorthLessGoesAndHasToBeGoneFirst) {
  Foreseen core(2);
  core.add_group();
  core.serve_group();
  core.pass(3s);
  foresee(core, kA);
  prewarm(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(core.loading.unfinished());
}

TEST(PrewarmGroup, AGroupWithRequestsKeepsItsDevices) {
  Foreseen core(2);
  core.add_group();
  core.serve_group();
  core.run(kGroup);
  prewarm(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.loads().empty());
}

}  // namespace
}  // namespace heddle::core::manager
