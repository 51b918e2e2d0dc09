#include <cstdint>
#include <functional>
#include <variant>
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
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::Spots;
using test::TestState;

constexpr DeviceId kThird{2};
constexpr DeviceId kFourth{3};

/// So many of the model's sequences on the device will be late, as its worker says.
void be_late(TestState& core, std::int64_t late, DeviceId device = kDevice, ModelId model = kA) {
  core.shortages.heard(device, {.models = {{.model = model, .late = late}}});
}

/// How many requests of the model each device was told to give back.
std::vector<std::pair<DeviceId, std::int64_t>> spread_recalls(const TestState& core) {
  std::vector<std::pair<DeviceId, std::int64_t>> all;
  for (const TellWorker& tell : core.all<TellWorker>()) {
    if (const auto* recall = std::get_if<RecallRequests>(&tell.message)) {
      EXPECT_FALSE(recall->begun);
      all.emplace_back(tell.device, recall->most);
    }
  }
  return all;
}

using Recalls = std::vector<std::pair<DeviceId, std::int64_t>>;

/// A model with so many requests on the first device, and none on the second. A device should bear
/// four.
struct Uneven : TestState {
  explicit Uneven(int requests, int count = 2) : TestState(count) {
    serve(kA);
    serve(kA, kOther);
    for (int i = 0; i < requests; ++i) {
      run(kA);
    }
  }
};

// ---- Elsewhere ----

TEST(Spread, WhoWillBeLateGoesWhereNobodyWaits) {
  Uneven core(4);
  be_late(core, 1);
  spread(core.parts);
  EXPECT_EQ(spread_recalls(core), (Recalls{{kDevice, 1}}));
}

TEST(Spread, WhoIsInTimeStays) {
  Uneven core(4);
  spread(core.parts);
  EXPECT_TRUE(spread_recalls(core).empty());
}

TEST(Spread, NoMoreGoThanMakeTheTwoEven) {
  Uneven core(4);
  be_late(core, 4);
  spread(core.parts);
  EXPECT_EQ(spread_recalls(core), (Recalls{{kDevice, 2}}));
}

TEST(Spread, RequestsThatAreMoreThanADeviceShouldBearWaitAsWell) {
  Uneven core(7);
  spread(core.parts);
  EXPECT_EQ(spread_recalls(core), (Recalls{{kDevice, 3}}));
}

TEST(Spread, AllThatHaveRoomTakeSome) {
  Uneven core(9, 3);
  core.serve(kA, kThird);
  core.run(kA, kThird);
  core.run(kA, kThird);
  spread(core.parts);
  EXPECT_EQ(spread_recalls(core), (Recalls{{kDevice, 5}}));
}

TEST(Spread, NobodyGoesWhereItWouldWaitToo) {
  const std::vector<std::function<void(Uneven&)>> reasons{
      [](Uneven& core) { be_late(core, 1, kOther); },
      [](Uneven& core) {
        core.serve(kB, kOther);
        core.run(kB, kOther);
        be_late(core, 1, kOther, kB);
      },
      [](Uneven& core) {
        core.shortages.heard(kOther, {.short_sequences = 1, .short_pages = 1, .short_model = kB});
      },
      [](Uneven& core) { core.at(kA, kOther).complete = false; },
      [](Uneven& core) { core.residency.drain(kOther, kA); },
      [](Uneven& core) { core.device(kOther).leaving = true; }};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Uneven core(4);
    be_late(core, 4);
    reasons[i](core);
    spread(core.parts);
    EXPECT_TRUE(spread_recalls(core).empty()) << i;
  }
}

TEST(Spread, AnInstanceThatWasSparedIsTakenBackFirst) {
  Uneven core(4);
  core.residency.spare(kOther, kA, true);
  be_late(core, 1);
  spread(core.parts);
  EXPECT_TRUE(spread_recalls(core).empty());
  EXPECT_FALSE(core.at(kA, kOther).spare);
  spread(core.parts);
  EXPECT_EQ(spread_recalls(core), (Recalls{{kDevice, 1}}));
}

// ---- One more ----

/// A model on the first device alone, with so many requests.
struct OneDevice : TestState {
  explicit OneDevice(int requests, PlannerOptions planner = {}) : TestState(2, planner) {
    serve(kA);
    for (int i = 0; i < requests; ++i) {
      run(kA);
    }
    model(kA).load_times[0] = 4s;
  }
  void look() {
    commands.clear();
    spread(parts);
  }
};

TEST(Spread, OneMoreComesOnceTheLateHaveWaitedForAsMuchAsItCosts) {
  OneDevice core(3);
  be_late(core, 2);
  core.look();
  core.pass(1900ms);
  core.look();
  EXPECT_TRUE(core.loads().empty()) << "two have waited for 3.8 s, and a load takes 4";
  core.pass(100ms);
  core.look();
  ASSERT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.at(kA, kOther).why, LoadReason::kLoad);
  EXPECT_NE(core.decisions(DecisionKind::kAdd).at(0).why.find("2 requests are more"),
            std::string::npos);
}

TEST(Spread, SoItDoesForRequestsThatAreMoreThanADeviceShouldBear) {
  OneDevice core(5);
  core.look();
  core.pass(4s);
  core.look();
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

TEST(Spread, WaitingThatHasEndedCountsNoMore) {
  OneDevice core(3);
  be_late(core, 2);
  core.look();
  core.pass(1s);
  be_late(core, 0);
  core.look();
  be_late(core, 2);
  core.look();
  core.pass(1s);
  core.look();
  EXPECT_TRUE(core.loads().empty());
}

TEST(Spread, AnInstanceThatIsOnItsWayBearsSome) {
  for (const int late : {4, 5}) {
    OneDevice core(8);
    core.load(kA, kOther);
    be_late(core, late);
    core.look();
    EXPECT_EQ(core.model(kA).unborne.requests, late - 4);
  }
}

TEST(Spread, WhatAModelWithoutRequestsToSpareHasIsWorthALoad) {
  TestState core(2, {.value = true});
  core.serve(kA);
  core.serve(kA, kOther);
  core.model(kA).load_times[0] = 4s;
  core.run(kA);
  EXPECT_EQ(worth(core.state, core.device(kOther), kA), 0);
  be_late(core, 1);
  spread(core.parts);
  EXPECT_GT(worth(core.state, core.device(kOther), kA), 0);
  core.pass(1min);
  EXPECT_EQ(worth(core.state, core.device(kOther), kA), 0);
}

TEST(Spread, AnEngineHasWhatItHas) {
  TestState core(2);
  core.add_engine();
  core.serve(kEngine);
  for (int i = 0; i < 9; ++i) {
    core.run(kEngine);
  }
  be_late(core, 5, kDevice, kEngine);
  spread(core.parts);
  core.pass(1min);
  spread(core.parts);
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(spread_recalls(core).empty());
}

// ---- Sharded models ----

/// A sharded model on the first block of two, with two requests that will be late.
struct OneBlock : TestState {
  OneBlock() : TestState(4) {
    add_group();
    serve_group();
    for (int i = 0; i < 3; ++i) {
      run(kGroup);
    }
    model(kGroup).load_times[0] = 4s;
    be_late(*this, 2, kDevice, kGroup);
  }
  void look_after(Duration time) {
    pass(time);
    commands.clear();
    spread(parts);
  }
};

TEST(Spread, AShardedModelGetsAnotherBlockOnceTheLateHaveWaitedForAsMuchAsItCosts) {
  OneBlock core;
  core.look_after({});
  core.look_after(1900ms);
  EXPECT_TRUE(core.loads().empty());
  core.look_after(100ms);
  ASSERT_EQ(core.loads(), (Spots{{kThird, kGroup}, {kFourth, kShard}}));
  EXPECT_EQ(core.at(kGroup, kThird).why, LoadReason::kLoad);
  EXPECT_NE(core.decisions(DecisionKind::kAdd).at(0).why.find("2 requests are more"),
            std::string::npos);
}

TEST(Spread, WhileABlockIsClaimedNoneIsSoughtAndLateRequestsGoWhereTheyCan) {
  OneBlock core;
  core.serve(kB, kThird);
  core.run(kB, kThird);
  core.look_after({});
  core.look_after(10s);
  ASSERT_TRUE(core.model(kGroup).claim);
  core.look_after(10s);
  EXPECT_EQ(core.decisions(DecisionKind::kAdd).size(), 0U);
  core.finish(*core.at(kB, kThird).in_flight.begin());
  core.claims.advance();
  EXPECT_EQ(core.loads(), (Spots{{kThird, kGroup}, {kFourth, kShard}}));
  EXPECT_EQ(core.decisions(DecisionKind::kAdd).size(), 1U);
  core.serve_group(kThird);
  core.look_after(1s);
  EXPECT_EQ(spread_recalls(core), (Recalls{{kDevice, 1}}));
}

}  // namespace
}  // namespace heddle::core::manager
