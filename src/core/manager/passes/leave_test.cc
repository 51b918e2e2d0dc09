#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_bench.h"
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

/// The first of two devices is of a host that is to go.
struct Leaving : TestState {
  Leaving() : TestState(2) {}
  void leave_first() { devices.leaves(kDevice, true); }
  void look() {
    commands.clear();
    leave(parts);
  }
};

TEST(Leave, AModelThatNobodyUsesGoes) {
  Leaving core;
  core.serve(kA);
  core.serve(kB, kOther);
  core.leave_first();
  core.pass(100s);
  core.look();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kLeave);
  EXPECT_TRUE(core.loads().empty());
}

TEST(Leave, AModelInUseIsLoadedElsewhereFirstAndServesUntilItIs) {
  Leaving core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.leave_first();
  core.look();
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.at(kA, kOther).why, LoadReason::kLeave);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  core.look();
  EXPECT_TRUE(core.loads().empty()) << "it is loaded once";
  core.serve(kA, kOther);
  core.look();
  EXPECT_TRUE(core.at(kA).is<Draining>());
  EXPECT_TRUE(core.evictions().empty());
  core.finish(id);
  core.look();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
}

TEST(Leave, AModelInUseTakesThePlaceOfIdleOnes) {
  Leaving core;
  core.serve(kA);
  core.serve(kB, kOther);
  core.serve(kC, kOther);
  core.run(kA);
  core.leave_first();
  core.look();
  ASSERT_EQ(core.loads(), (Spots{{kOther, kA}}));
  EXPECT_EQ(core.evictions().size(), 1U);
}

TEST(Leave, WhereNothingCanTakeOverItIsSentNoMore) {
  Leaving core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.leave_first();
  core.devices.down(kOther);
  core.look();
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(core.at(kA).is<Draining>());
  core.finish(id);
  core.look();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
}

TEST(Leave, WhatIsOnItsWayGoesAtOnce) {
  Leaving core;
  core.load(kA);
  core.leave_first();
  core.look();
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
}

TEST(Leave, APlanOfTheDeviceIsGivenUp) {
  Leaving core;
  core.serve(kA);
  core.run(kA);
  core.wait(kB, 96);
  core.plans.begin(kDevice, kB, {kA});
  core.leave_first();
  core.look();
  EXPECT_FALSE(core.device().plan);
}

TEST(Leave, AGroupIsSentNothingMoreAndGoesWhenItIsIdle) {
  Leaving core;
  core.add_group();
  core.serve_group();
  const RequestId id = core.run(kGroup);
  core.devices.leaves(kOther, true);
  core.leave_first();
  core.look();
  EXPECT_TRUE(core.at(kGroup).is<Draining>());
  core.finish(id);
  core.look();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}})) << "rank 0 goes first";
}

TEST(Leave, AStagedShardGoesAtOnce) {
  Leaving core;
  core.add_group();
  core.stage(kGroup);
  core.stage(kShard);
  core.leave_first();
  core.devices.leaves(kOther, true);
  core.look();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}, {kOther, kShard}}));
}

TEST(Leave, AnEngineThatStandsByEndsAndOneWithRequestsComesBackForThem) {
  Leaving core;
  core.add_engine();
  core.serve(kEngine);
  core.residency.suspend(kDevice, kEngine, 2);
  core.leave_first();
  core.look();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kEngine}}));

  Leaving busy;
  busy.add_engine();
  busy.serve(kEngine);
  busy.run(kEngine);
  busy.residency.suspend(kDevice, kEngine, 2);
  busy.leave_first();
  busy.look();
  EXPECT_TRUE(busy.evictions().empty());
}

// ---- With all passes ----

constexpr DeviceId kFar = device_id(HostId(1), 0);

/// Two hosts with a device each; model a serves on the first.
core::test::Bench two_hosts() {
  Configure both = core::test::Bench(2, {}).configuration;
  both.devices.at(1).id = kFar;
  for (ManagerModel& model : both.models) {
    auto there = model.footprints.extract(DeviceId(1));
    there.key() = kFar;
    model.footprints.insert(std::move(there));
  }
  core::test::Bench bench(both);
  bench.acts = true;
  bench.tell(AdminLoad{.ticket = TicketId(1), .model = kA});
  bench.wait(2s);
  return bench;
}

TEST(LeaveHost, RequestsGoToTheHostThatStaysAndThenTheModelDoes) {
  core::test::Bench bench = two_hosts();
  const RequestId first = bench.arrive(kA);
  ASSERT_EQ(bench.sent[kDevice], (std::vector{first}));
  bench.tell(HostLeaving{.host = HostId(0)});
  EXPECT_TRUE(bench.resident[kFar].contains(kA));
  bench.wait(2s);
  const RequestId second = bench.arrive(kA);
  EXPECT_EQ(bench.sent[kFar], (std::vector{second}));
  EXPECT_TRUE(bench.resident[kDevice].contains(kA)) << "a request of it runs still";
  bench.finish(first);
  EXPECT_FALSE(bench.resident[kDevice].contains(kA));
  bench.tell(RequestArrived{.request = RequestId(9), .model = kB, .max_tokens = 4});
  bench.wait(2s);
  EXPECT_TRUE(bench.resident[kFar].contains(kB)) << "nothing comes to a host that is to go";
  EXPECT_TRUE(bench.resident[kDevice].empty());
}

TEST(LeaveHost, OneThatStaysAfterAllTakesRequestsAgain) {
  core::test::Bench bench = two_hosts();
  bench.tell(HostLost{.host = HostId(1)});
  const RequestId first = bench.arrive(kA);
  bench.tell(HostLeaving{.host = HostId(0)});
  const RequestId second = bench.arrive(kA);
  EXPECT_EQ(bench.sent[kDevice], (std::vector{first})) << "it is sent nothing more";
  bench.tell(HostLeaving{.host = HostId(0), .leaving = false});
  EXPECT_EQ(bench.sent[kDevice], (std::vector{first, second}));
}

TEST(LeaveHost, OneThatIsLostComesBackAsOneThatStays) {
  core::test::Bench bench = two_hosts();
  bench.tell(HostLeaving{.host = HostId(0)});
  EXPECT_TRUE(bench.resident[kDevice].empty());
  bench.tell(HostLost{.host = HostId(0)});
  bench.tell(HostLost{.host = HostId(1)});
  bench.come_up(kDevice);
  const RequestId id = bench.arrive(kA);
  bench.wait(2s);
  EXPECT_EQ(bench.sent[kDevice], (std::vector{id}));
}

}  // namespace
}  // namespace heddle::core::manager
