#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"
#include "core/manager/value.h"

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

/// So many sequences of a model wait for pages on the device.
void lack(TestState& core, std::int64_t sequences, std::int64_t pages, ModelId model = kA) {
  core.shortages.heard(kDevice,
                       {.short_sequences = sequences, .short_pages = pages, .short_model = model});
}

// ---- Lend ----

/// Two sequences of a model wait for three pages beside a model that is idle.
struct Short : TestState {
  explicit Short(PlannerOptions planner = {.value = true}) : TestState(1, planner) {
    serve(kA);
    run(kA);
    serve(kB);
    model(kB).load_times[0] = 4s;
    lack(*this, 2, 3);
  }
};

TEST(Lend, AnIdleModelGoesOnceOthersHaveWaitedForAsMuchAsItIsWorth) {
  Short core;
  const double cost = worth(core.state, core.device(), kB);
  ASSERT_GT(cost, 0.1);
  lend(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  const std::optional<Instant> then = core.wake();
  ASSERT_TRUE(then);
  core.state.now = *then;
  lend(core.parts);
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
  EXPECT_EQ(core.at(kB).as<Evicting>()->why, EvictionReason::kOutgrown);
  EXPECT_EQ(core.decisions(DecisionKind::kEvict)[0].for_model, kA);
}

TEST(Lend, WhatAModelWasWorthIsPaidForByTheWait) {
  Short core;
  core.pass(1min);
  const double cost = worth(core.state, core.device(), kB);
  lend(core.parts);
  ASSERT_EQ(core.evictions().size(), 1U);
  EXPECT_DOUBLE_EQ(core.device().shortage.waited, 120 - cost);
}

TEST(Lend, OnlyAnIdleModelThatMayLeaveLends) {
  const std::vector<std::function<void(Short&)>> reasons{
      [](Short& core) { core.run(kB); },
      [](Short& core) { core.wait(kB); },
      [](Short& core) { core.residency.drain(kDevice, kB); },
      [](Short& core) { core.model(kB).config.pin = true; },
      [](Short& core) { core.state.options.planner.evict = false; },
      [](Short& core) { core.model(kB).config.min_residence = 2min; },
      [](Short& core) { core.model(kB).config.external = ExternalModel{}; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Short core;
    reasons[i](core);
    core.pass(1min);
    lend(core.parts);
    EXPECT_TRUE(core.evictions().empty()) << i;
  }
}

TEST(Lend, NobodyLendsWhileSomethingIsEvictedOrThereIsNothingToLendFor) {
  const std::vector<std::function<void(Short&)>> reasons{
      [](Short& core) {
        core.load(kC);
        core.residency.evict(kDevice, kC, EvictMode::kNow, EvictionReason::kFailed);
        core.commands.clear();
      },
      [](Short& core) { core.plans.begin(kDevice, kC, {}); },
      [](Short& core) { core.devices.down(kDevice); },
      [](Short& core) { core.shortages.clear(kDevice); },
      [](Short& core) { core.state.drain_deadline = core.state.now + 1h; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Short core;
    reasons[i](core);
    core.pass(1min);
    lend(core.parts);
    EXPECT_TRUE(core.evictions().empty()) << i;
  }
}

TEST(Lend, NobodyIsWatchedWhereNothingIsShort) {
  Short core(PlannerOptions{});
  core.shortages.clear(kDevice);
  lend(core.parts);
  EXPECT_FALSE(core.wake());
}

TEST(Lend, WhereWorthIsLeftOutAModelIsIdleAfterFiveTimesItsLoad) {
  Short core(PlannerOptions{});
  const Instant used = core.state.now;
  lend(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_EQ(core.wake(), used + 20s);
  core.pass(20s);
  lend(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
}

TEST(Lend, AModelThatCameButWasNotAskedForIsIdleSinceItCame) {
  TestState core;
  core.serve(kA);
  core.run(kA);
  core.pass(1min);
  core.serve(kB);
  lack(core, 2, 3);
  lend(core.parts);
  EXPECT_EQ(core.wake(), core.state.now + 5 * load_time(core.state, core.model(kB), core.device()));
  EXPECT_TRUE(core.evictions().empty());
}

TEST(Lend, AStagedShardLendsOnceItIsThere) {
  TestState core(2, {.value = true});
  core.add_group();
  core.serve(kA);
  core.run(kA);
  core.residency.begin_load(kDevice, kGroup, LoadReason::kForecast, {.staged = true});
  core.commands.clear();
  lack(core, 2, 3);
  core.pass(1min);
  lend(core.parts);
  EXPECT_TRUE(core.evictions().empty());
  core.stage(kGroup);
  lend(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}}));
}

// ---- One device more ----

const PlannerOptions kPressure{.value = true, .pressure = true};

/// Two sequences of a model wait for three pages, and nobody can lend.
struct Alone : TestState {
  explicit Alone(int count = 2, PlannerOptions planner = kPressure) : TestState(count, planner) {
    serve(kA);
    run(kA);
    lack(*this, 2, 3);
  }
};

TEST(Lend, WhereNobodyLendsAModelGetsOneDeviceMoreOnceItHasWaitedForWhatThatCosts) {
  Alone core;
  lend(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_EQ(core.wake(), core.state.now + 40ms) << "two wait for what takes 80 ms";
  core.pass(40ms);
  lend(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.at(kA, kOther).why, LoadReason::kPressure);
  EXPECT_NEAR(core.device().shortage.waited, 0, 1e-9) << "that is paid for";
}

TEST(Lend, WhatTheDeviceMoreCostsOthersCounts) {
  Alone core;
  for (const ModelId model : {kB, kC}) {
    core.serve(model, kOther);
    core.model(model).load_times[0] = 20s;
    core.finish(core.run(model, kOther));
  }
  core.pass(1s);
  lend(core.parts);
  EXPECT_TRUE(core.loads().empty());
  core.pass(1min);
  lend(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(Lend, NoDeviceMoreIsGivenWhereSomebodyLends) {
  Alone core;
  core.serve(kB);
  core.pass(1min);
  lend(core.parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
  EXPECT_TRUE(core.loads().empty());
}

TEST(Lend, NoDeviceMoreIsGivenWhereThatIsLeftOut) {
  Alone core(2, {.value = true});
  core.pass(1min);
  lend(core.parts);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Lend, NoDeviceMoreIsGivenWhereTheModelHasRoomOrAboutToHaveIt) {
  Alone room(3);
  room.serve(kA, kOther);
  Alone coming(3);
  coming.load(kA, kOther);
  coming.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 1, .short_model = kA});
  coming.commands.clear();
  for (Alone* core : {&room, &coming}) {
    core->pass(1min);
    lend(core->parts);
    EXPECT_TRUE(core->loads().empty());
  }
  room.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 1, .short_model = kA});
  lend(room.parts);
  EXPECT_EQ(room.loads(), (Spots{{DeviceId(2), kA}})) << "both are short";
}

TEST(Lend, NoDeviceMoreIsGivenToARemovedModelOrAnEngineOrAShardedModel) {
  Alone removed;
  removed.remove(kA);
  Alone engine;
  engine.model(kA).config.external = ExternalModel{};
  TestState group(4, kPressure);
  group.add_group();
  group.serve_group();
  group.run(kGroup);
  lack(group, 2, 3, kGroup);
  for (TestState* core : std::vector<TestState*>{&removed, &engine, &group}) {
    core->pass(1min);
    lend(core->parts);
    EXPECT_TRUE(core->loads().empty());
  }
}

// ---- Recall ----

/// A model on two devices; two sequences of it lack four pages of the first.
struct Both : TestState {
  Both() : TestState(2, {.pressure = true}) {
    serve(kA);
    serve(kA, kOther);
    run(kA);
    lack(*this, 2, 4);
  }
  /// How many requests the first worker was told to give up, each time.
  [[nodiscard]] std::vector<std::int64_t> recalls() const {
    std::vector<std::int64_t> found;
    for (const TellWorker& tell : all<TellWorker>()) {
      const auto* recall = std::get_if<RecallRequests>(&tell.message);
      EXPECT_NE(recall, nullptr);
      EXPECT_EQ(tell.device, kDevice);
      found.push_back(recall->most);
    }
    return found;
  }
};

TEST(Recall, RequestsAreRecalledToWhereTheirModelHasRoomAndNoMoreThanThat) {
  Both core;
  recall(core.parts);
  EXPECT_EQ(core.recalls(), std::vector<std::int64_t>{4}) << "as many as the device should bear";
  EXPECT_EQ(std::get<RecallRequests>(core.all<TellWorker>()[0].message).model, kA);

  Both running;
  running.run(kA, kOther);
  recall(running.parts);
  EXPECT_EQ(running.recalls(), std::vector<std::int64_t>{3});

  Both full;
  full.serve(kB, kOther);  // Two pages are free; each wants two.
  recall(full.parts);
  EXPECT_EQ(full.recalls(), std::vector<std::int64_t>{1});
}

TEST(Recall, IsSaidOnceAPeriod) {
  Both core;
  recall(core.parts);
  core.pass(core.state.options.planner.period - 1ms);
  recall(core.parts);
  EXPECT_EQ(core.recalls().size(), 1U);
  core.pass(1ms);
  recall(core.parts);
  EXPECT_EQ(core.recalls().size(), 2U);
}

TEST(Recall, NobodyIsRecalledWithoutShortageHereOrRoomThere) {
  const std::vector<std::function<void(Both&)>> reasons{
      [](Both& core) { core.state.options.planner.pressure = false; },
      [](Both& core) { core.shortages.clear(kDevice); },
      [](Both& core) { core.devices.down(kDevice); },
      [](Both& core) { core.at(kA, kOther).complete = false; },
      [](Both& core) { core.residency.drain(kOther, kA); },
      [](Both& core) {
        core.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 1, .short_model = kA});
      },
      [](Both& core) {
        for (int i = 0; i < 4; ++i) {
          core.run(kA, kOther);
        }
      },
      [](Both& core) { core.at(kA, kOther).kv_pages = 11; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Both core;
    reasons[i](core);
    recall(core.parts);
    EXPECT_TRUE(core.recalls().empty()) << i;
  }
}

TEST(Recall, NobodyIsRecalledOfAnEngineOrAShardedModel) {
  Both engine;
  engine.model(kA).config.external = ExternalModel{};
  recall(engine.parts);
  EXPECT_TRUE(engine.recalls().empty());

  TestState group(4, {.pressure = true});
  group.add_group();
  group.serve_group();
  group.run(kGroup);
  group.serve_group(DeviceId(2));
  lack(group, 2, 4, kGroup);
  recall(group.parts);
  EXPECT_TRUE(group.all<TellWorker>().empty());
}

}  // namespace
}  // namespace heddle::core::manager
