// Groups whose KV has shares, so that other models are beside them: what goes for one, what may
// come beside it, and what the manager says of its share.

#include <gtest/gtest.h>

#include "core/manager/groups.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/replicas.h"
#include "core/manager/test_state.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::Spots;
using test::TestState;

const Spots kBlock{{kDevice, kGroup}, {kOther, kShard}};

/// Two devices, of 20 pages, and a sharded model that needs 9 of each, as others do of one.
struct Shared : TestState {
  Shared() : TestState(2) {
    add_group();
    for (ManagerModel& model : configuration.models) {
      model.shares = model.id == kGroup || model.id == kShard;
    }
    configure();
  }
  /// So many pages of KV, as workers report them.
  void hold(ModelId model, DeviceId device, std::int64_t pages) {
    residency.observe(device, {.model = model, .kv_pages = pages, .complete = true});
    commands.clear();
  }
  [[nodiscard]] std::vector<FitShare> fitted() const {
    std::vector<FitShare> all_fitted;
    for (const TellWorker& tell : all<TellWorker>()) {
      if (const auto* fit = std::get_if<FitShare>(&tell.message)) {
        all_fitted.push_back(*fit);
      }
    }
    return all_fitted;
  }
};

// ---- A group that comes ----

TEST(SharedGroups, WhatHasRoomBesideAGroupStays) {
  Shared core;
  core.serve(kA, kOther);
  const RequestId runs = core.run(kA, kOther);
  core.wait(kGroup);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.loads(), kBlock);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.at(kA, kOther).is<Serving>());
  core.finish(runs);
}

TEST(SharedGroups, WhereMemoryLacksWhatIsIdleGoes) {
  Shared core;
  core.serve(kA, kOther);
  core.serve(kB, kOther);
  core.run(kA, kOther);
  core.wait(kGroup);
  core.claims.claim(kGroup, kDevice);
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kB}}));
  EXPECT_EQ(core.loads(), kBlock);
}

TEST(SharedGroups, RequestsThatWaitCountForTheMemoryThatIsNeeded) {
  Shared core;
  core.serve(kA, kOther);
  core.wait(kGroup, 40);  // 5 pages: with 8 of weights and 9 of the other that is 22.
  EXPECT_EQ(in_the_way(core.state, core.device(kOther), kShard)->goes, std::vector<ModelId>{kA});
  EXPECT_FALSE(in_the_way(core.state, core.device(kDevice), kGroup)->has(kA));
}

TEST(SharedGroups, AGroupIsFormedBesideOthers) {
  Shared core;
  core.serve(kA, kOther);
  core.load_group();
  core.at(kGroup).complete = core.at(kShard, kOther).complete = true;
  tend_groups(core.parts);
  EXPECT_EQ(core.all<FormGroup>().size(), 1U);
  check_groups(core.state);
}

TEST(SharedGroups, ABlockWithABusyModelIsTheLastThatIsTaken) {
  Shared core;
  core.serve(kA, kOther);
  EXPECT_FALSE(block_view(core.state, kGroup, kDevice).short_of_pages);
  core.run(kA, kOther);
  EXPECT_TRUE(block_view(core.state, kGroup, kDevice).short_of_pages);
}

TEST(SharedGroups, WhatNeverLeavesMayStayWhereThereIsRoom) {
  Shared core;
  core.serve(kA, kOther);
  core.model(kA).config.pin = true;
  EXPECT_TRUE(claimable(core.state, kGroup, kDevice));
  core.serve(kB, kOther);
  core.model(kB).config.pin = true;
  EXPECT_FALSE(claimable(core.state, kGroup, kDevice));
}

// ---- Others that come beside it ----

TEST(SharedGroups, LeaveWhatTheirShareLeaves) {
  Shared core;
  core.serve_group();
  core.hold(kShard, kOther, 4);
  EXPECT_EQ(free_pages(core.state, core.device(kOther)), 20 - 8 - 4);
  EXPECT_EQ(free_pages(core.state, core.device(kDevice)), 20 - 8 - 1);
}

TEST(SharedGroups, AModelComesBesideABusyGroupWhereNothingElseIs) {
  Shared core;
  core.serve_group();
  EXPECT_FALSE(outline(core.state, core.device(), kA).short_of_pages);
  core.run(kGroup);
  EXPECT_TRUE(outline(core.state, core.device(), kA).short_of_pages);
  EXPECT_TRUE(outline(core.state, core.device(kOther), kA).short_of_pages);
  EXPECT_FALSE(outline(core.state, core.device(), kA).residents.at(0).displaced);
}

TEST(SharedGroups, NothingComesWhereStepsWouldMissAnObjective) {
  Shared core;
  core.model(kGroup).config.slo.tpot = 50ms;
  core.model(kA).config.slo.tpot = 100ms;
  core.serve_group();
  core.run(kGroup);
  core.devices.step(kDevice, 20ms);
  EXPECT_FALSE(too_slow_beside(core.state, core.device(kOther), kShard, kA)) << "40 ms";
  core.devices.step(kDevice, 30ms);
  EXPECT_TRUE(too_slow_beside(core.state, core.device(kOther), kShard, kA)) << "60 ms";
  EXPECT_TRUE(outline(core.state, core.device(kOther), kA).residents.at(0).displaced);
}

TEST(SharedGroups, AnIdleGroupIsInNobodysWay) {
  Shared core;
  core.model(kGroup).config.slo.tpot = 1ms;
  core.serve_group();
  core.devices.step(kDevice, 30ms);
  EXPECT_FALSE(too_slow_beside(core.state, core.device(kOther), kShard, kA));
}

// ---- The share ----

TEST(SharedGroups, AGroupThatIsShortIsToldWhenItsDevicesChange) {
  Shared core;
  core.serve(kA, kOther);
  core.serve_group();
  core.run(kGroup);
  core.shortages.heard(kDevice, {.short_sequences = 1, .short_pages = 3, .short_model = kGroup});
  core.commands.clear();
  core.residency.forget(kOther, kA);
  tend_groups(core.all_parts);
  ASSERT_EQ(core.fitted().size(), 1U);
  EXPECT_EQ(core.fitted()[0], (FitShare{.model = kGroup}));
}

TEST(SharedGroups, AGroupThatWasIdleForAWhileGivesUpWhatItDoesNotNeed) {
  Shared core;
  core.serve_group();
  core.hold(kShard, kOther, 4);
  fit_shares(core.parts);
  EXPECT_TRUE(core.fitted().empty());
  core.pass(11s);
  fit_shares(core.parts);
  ASSERT_EQ(core.fitted().size(), 1U);
  EXPECT_TRUE(core.fitted()[0].idle);
  core.commands.clear();
  core.hold(kShard, kOther, 1);
  fit_shares(core.parts);
  EXPECT_TRUE(core.fitted().empty());
}

TEST(SharedGroups, WhoseOldestRequestCannotGoOnHasOthersGoFromEachDevice) {
  Shared core;
  core.serve(kA, kOther);
  core.serve_group();
  core.run(kGroup);
  core.devices.usage(kDevice, {.total = 20, .free = 8});
  core.devices.usage(kOther, {.total = 20, .free = 1});
  core.plans.want_pages(kDevice, {.pages_wanted = 3, .wanted_by = kGroup});
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kA}}));
}

TEST(SharedGroups, WhereAllDevicesHaveMemoryTheGroupIsTold) {
  Shared core;
  core.serve(kA, kOther);
  core.serve_group();
  core.run(kGroup);
  core.devices.usage(kDevice, {.total = 20, .free = 8});
  core.devices.usage(kOther, {.total = 20, .free = 8});
  core.plans.want_pages(kDevice, {.pages_wanted = 3, .wanted_by = kGroup});
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_EQ(core.fitted().size(), 1U);
}

TEST(SharedGroups, WhereNobodyCanGoItDoesWithout) {
  Shared core;
  core.serve_group();
  core.run(kGroup);
  core.devices.usage(kDevice, {.total = 20, .free = 8});
  core.devices.usage(kOther, {.total = 20, .free = 1});
  core.plans.want_pages(kDevice, {.pages_wanted = 3, .wanted_by = kGroup});
  ASSERT_EQ(core.all<TellWorker>().size(), 1U);
  EXPECT_TRUE(std::holds_alternative<NoPages>(core.all<TellWorker>()[0].message));
}

}  // namespace
}  // namespace heddle::core::manager
