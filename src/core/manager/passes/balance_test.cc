#include <functional>
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
using test::kGroup;
using test::kOther;
using test::Spots;
using test::TestState;

constexpr DeviceId kThird{2};
constexpr DeviceId kFourth{3};

// ---- Balance ----

/// Two models with requests fill the first device, and some of these lack memory there.
struct Pressed : TestState {
  explicit Pressed(PlannerOptions planner = {.pressure = true}, int count = 2)
      : TestState(count, planner) {
    for (const ModelId model : {kA, kB}) {
      serve(model);
      const RequestId id = wait(model, 80);
      queues.send(id, kDevice, std::nullopt);
      running.push_back(id);
    }
    commands.clear();
    shortages.heard(kDevice, {.short_sequences = 2, .short_pages = 3, .short_model = kA});
  }
  std::vector<RequestId> running{};
};

TEST(Balance, OneModelMovesToWhereThereIsMoreMemoryForItsKv) {
  Pressed core;
  balance(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.at(kA).moves_to, kOther);
  EXPECT_TRUE(core.at(kA).is<Serving>()) << "meanwhile it serves where it is";
  EXPECT_EQ(core.at(kA, kOther).why, LoadReason::kPressure);
  EXPECT_EQ(core.decisions(DecisionKind::kMove).size(), 1U);
  EXPECT_FALSE(core.at(kB).moves_to);
}

TEST(Balance, PressureAloneMovesNothing) {
  Pressed core;
  core.shortages.clear(kDevice);
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Balance, IdleModelsPressNobody) {
  Pressed core;
  for (const RequestId id : core.running) {
    core.finish(id);
  }
  core.pass(1h);
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Balance, OnlyAModelThatIsWholeInOnePlaceAndMayLeaveItMoves) {
  const std::vector<std::function<void(Pressed&)>> reasons{
      [](Pressed& core) { core.at(kA).complete = false; },
      [](Pressed& core) { core.residency.drain(kDevice, kA); },
      [](Pressed& core) { core.model(kA).config.pin = true; },
      [](Pressed& core) { core.model(kA).removed = true; },
      [](Pressed& core) { core.model(kA).config.external = ExternalModel{}; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    for (const bool other : {true, false}) {
      Pressed core;
      core.model(kB).config.pin = !other;
      reasons[i](core);
      balance(core.parts);
      EXPECT_EQ(core.loads(), other ? (Spots{{kOther, kB}}) : Spots{}) << i;
    }
  }
}

TEST(Balance, AModelOfSeveralDevicesStays) {
  Pressed core({.pressure = true}, 3);
  core.serve(kA, kOther);
  core.serve(kB, kOther);
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Balance, DevicesOnWhichSomethingElseIsUnderWayAreLeftOut) {
  const std::vector<std::function<void(Pressed&, DeviceId)>> reasons{
      [](Pressed& core, DeviceId id) { core.device(id).up = false; },
      [](Pressed& core, DeviceId id) { core.plans.begin(id, kC, {}); },
      [](Pressed& core, DeviceId id) { core.queues.keep_alone(id, RequestId(1)); },
      [](Pressed& core, DeviceId id) { core.device(id).claimed = kC; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    for (const DeviceId device : {kDevice, kOther}) {
      Pressed core;
      reasons[i](core, device);
      balance(core.parts);
      EXPECT_TRUE(core.loads().empty()) << i << " on " << device.value();
    }
  }
}

TEST(Balance, NothingMovesWhereTheLoadTakesLongerThanTheReliefIsExpectedToLast) {
  Pressed core;
  core.model(kA).load_times[0] = 31s;
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Balance, NothingMovesOverALinkThatTakesLongerThanTheReliefIsExpectedToLast) {
  Pressed core;
  core.model(kA).load_times[0] = core.model(kB).load_times[0] = 80ms;
  core.device().load_rate = 1e6;
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Balance, AModelThatWasActedOnAMomentAgoStays) {
  Pressed core;
  core.loading.hold({.model = kA});
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_FALSE(core.at(kA).moves_to);
}

/// An idle model is in the way on the other device.
struct InTheWay : Pressed {
  InTheWay() : Pressed({.value = true, .pressure = true}) {
    device(kOther).config.pages = 16;
    serve(kC, kOther);
    finish(run(kC, kOther));
    pass(1s);
    commands.clear();
  }
};

TEST(Balance, AnIdleModelMakesRoomForOneThatMoves) {
  InTheWay core;
  balance(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kC}}));
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(Balance, AModelThatIsWorthMoreThanTheReliefDoesNotMakeRoom) {
  InTheWay core;
  core.model(kC).load_times[0] = 1min;
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Balance, ABusyModelAndAPinnedOneDoNotMakeRoom) {
  InTheWay busy;
  busy.run(kC, kOther);
  InTheWay pinned;
  pinned.model(kC).config.pin = true;
  for (InTheWay* core : {&busy, &pinned}) {
    balance(core->parts);
    EXPECT_TRUE(core->loads().empty());
    EXPECT_TRUE(core->at(kC, kOther).is<Serving>());
  }
}

/// Of four devices only the first and the third are up, which leads a block.
struct Blocks : Pressed {
  Blocks() : Pressed({.value = true, .pressure = true}, 4) {
    add_group();
    devices.down(kOther);
  }
};

TEST(Balance, AGroupKeepsItsDevices) {
  Blocks core;
  core.serve_group(kThird);
  core.pass(1s);
  balance(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(core.evictions().empty());
}

TEST(Balance, AStagedShardPressesNobody) {
  Blocks core;
  core.device(kThird).config.pages = 16;
  core.devices.down(kFourth);
  core.residency.begin_load(kThird, kGroup, LoadReason::kForecast, {.staged = true});
  core.residency.serve(kThird, kGroup);
  core.commands.clear();
  for (int i = 0; i < 2; ++i) {
    core.pass(1s);
    core.demand.arrived(kGroup, 8);
    core.demand.left(kGroup, 0s);
  }
  balance(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kThird, kGroup}}));
  EXPECT_EQ(core.loads(), (Spots{{kThird, kA}}));
}

// ---- Finish moves ----

/// A model with a request moves from one device to another, and is on its way there.
struct Moving : TestState {
  Moving() : TestState(2) {
    serve(kA);
    request = run(kA);
    residency.move(kDevice, kA, kOther);
    load(kA, kOther);
    commands.clear();
  }
  RequestId request{};
};

TEST(FinishMoves, AModelIsSentRequestsAtItsOldPlaceWhileItIsOnItsWay) {
  Moving core;
  finish_moves(core.parts);
  EXPECT_EQ(core.at(kA).moves_to, kOther);
  EXPECT_FALSE(core.at(kA).spare);
}

TEST(FinishMoves, OnceAModelServesElsewhereItGoesWhenItsRequestsHaveEnded) {
  Moving core;
  core.serve(kA, kOther);
  finish_moves(core.parts);
  EXPECT_TRUE(core.at(kA).spare);
  EXPECT_TRUE(core.evictions().empty());
  core.finish(core.request);
  finish_moves(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kWhenIdle);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kMoved);
  EXPECT_FALSE(core.at(kA).moves_to);
}

TEST(FinishMoves, AModelThatDoesNotGetThereStays) {
  Moving lost;
  lost.residency.forget(kOther, kA);
  Moving leaves;
  leaves.residency.evict(kOther, kA, EvictMode::kNow, EvictionReason::kFailed);
  leaves.commands.clear();
  for (Moving* core : {&lost, &leaves}) {
    finish_moves(core->parts);
    EXPECT_FALSE(core->at(kA).moves_to);
    EXPECT_FALSE(core->at(kA).spare);
    EXPECT_TRUE(core->evictions().empty());
  }
}

TEST(FinishMoves, AModelThatLeavesItsOldPlaceAnywayIsNotToldAgain) {
  Moving core;
  core.finish(core.request);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kOperator);
  core.commands.clear();
  finish_moves(core.parts);
  EXPECT_FALSE(core.at(kA).moves_to);
  core.serve(kA, kOther);
  finish_moves(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_FALSE(core.at(kA).spare);
}

TEST(FinishMoves, AModelThatHasMovedAndLeavesAlreadyIsDone) {
  Moving core;
  core.serve(kA, kOther);
  core.finish(core.request);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kOperator);
  core.commands.clear();
  finish_moves(core.parts);
  EXPECT_FALSE(core.at(kA).moves_to);
  EXPECT_TRUE(core.evictions().empty());
}

TEST(FinishMoves, AModelThatIsDrainedForAnotherIsLeftToThat) {
  Moving core;
  core.residency.drain(kDevice, kA);
  core.serve(kA, kOther);
  core.finish(core.request);
  finish_moves(core.parts);
  EXPECT_TRUE(core.evictions().empty());
}

}  // namespace
}  // namespace heddle::core::manager
