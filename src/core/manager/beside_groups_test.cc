// Several groups on the same devices: which are formed at once, and which step back to staged
// shards as another comes, or as their KV is wanted.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/groups.h"
#include "core/manager/passes/passes.h"
#include "core/manager/test_bench.h"
#include "core/manager/test_state.h"
#include "core/manager/views.h"
#include "core/manager/worker_events.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kDevice;
using test::kGroup;
using test::kOther;
using test::kSecond;
using test::kSecondShard;
using test::kShard;
using test::Spots;
using test::TestState;

const Spots kSecondBlock{{kDevice, kSecond}, {kOther, kSecondShard}};

/// Two devices of 20 pages, and two sharded models that need 9 of each.
struct TwoGroups : TestState {
  TwoGroups() : TestState(2) {
    add_group();
    add_group(kSecond, kSecondShard);
    for (ManagerModel& model : configuration.models) {
      model.shares = model.id >= kGroup;
    }
    configure();
  }

  /// The block of the second one is led by the other device.
  void lead_apart() {
    for (ManagerModel& model : configuration.models) {
      if (model.id == kSecond) {
        model.footprints = {};
        model.footprints[kOther] = footprint();
        model.groups = {{kOther, {{.model = kSecondShard, .device = kDevice}}}};
      } else if (model.id == kSecondShard) {
        model.footprints = {};
        model.footprints[kDevice] = footprint();
      }
    }
    configure();
  }

  /// So many pages of KV, as workers report them.
  void hold(ModelId model, DeviceId device, std::int64_t pages) {
    residency.observe(device, {.model = model, .kv_pages = pages, .complete = true});
    commands.clear();
  }

  /// Groups that were told to step back, by who leads them.
  [[nodiscard]] Spots told_to_step_back() const {
    Spots told;
    for (const TellWorker& tell : all<TellWorker>()) {
      if (const auto* back = std::get_if<StepBack>(&tell.message)) {
        told.emplace_back(tell.device, back->model);
      }
    }
    return told;
  }

  /// The worker says that it has.
  void say_stepped_back(ModelId group = kGroup, DeviceId leader = kDevice) {
    hear(all_parts,
         WorkerSaid{.device = leader,
                    .epoch = device(leader).epoch,
                    .report = SteppedBack{.model = group}});
    tend_groups(all_parts);
  }
};

const Spots kFirst{{kDevice, kGroup}};

// ---- Formed at once ----

TEST(BesideGroups, WhereMemoryAllowsAnotherComesAndBothAreFormed) {
  TwoGroups core;
  core.serve_group();
  const RequestId runs = core.run(kGroup);
  core.wait(kSecond);
  core.claims.claim(kSecond, kDevice);
  EXPECT_EQ(core.loads(), kSecondBlock);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.told_to_step_back().empty());
  core.at(kSecond).complete = core.at(kSecondShard, kOther).complete = true;
  EXPECT_EQ(beside(core.state, kSecond, kDevice), Beside::kNobody);
  tend_groups(core.all_parts);
  EXPECT_EQ(core.all<FormGroup>().size(), 1U);
  core.residency.formed(kSecond, kDevice);
  check_groups(core.state);
  core.finish(runs);
}

TEST(BesideGroups, GroupsOfDifferentLeadersAreNotFormedAtOnce) {
  TwoGroups core;
  EXPECT_TRUE(run_beside(core.state, core.device(kOther), kShard, kSecondShard));
  core.lead_apart();
  EXPECT_FALSE(run_beside(core.state, core.device(kOther), kShard, kSecond));
  core.serve_group();
  EXPECT_EQ(beside(core.state, kSecond, kOther), Beside::kStaying);
  EXPECT_TRUE(in_the_way(core.state, core.device(kOther), kSecond)->has(kShard));
}

TEST(BesideGroups, AGroupThatHasItsDevicesToItselfIsBesideNoOther) {
  TwoGroups core;
  core.model(kSecond).config.shares = core.model(kSecondShard).config.shares = false;
  core.serve_group();
  EXPECT_FALSE(run_beside(core.state, core.device(), kGroup, kSecond));
  EXPECT_EQ(beside(core.state, kSecond, kDevice), Beside::kStaying);
}

TEST(BesideGroups, APinnedGroupIsInTheWayOfThoseAloneThatDoNotRunBesideIt) {
  TwoGroups core;
  core.serve_group();
  core.model(kGroup).config.pin = true;
  EXPECT_TRUE(claimable(core.state, kSecond, kDevice));
  TwoGroups apart;
  apart.lead_apart();
  apart.serve_group();
  apart.model(kGroup).config.pin = true;
  EXPECT_FALSE(claimable(apart.state, kSecond, kOther));
}

TEST(BesideGroups, KvOfAPinnedGroupIsInNobodysWay) {
  TwoGroups core;
  core.serve_group();
  core.model(kGroup).config.pin = true;
  core.hold(kShard, kOther, 5);
  EXPECT_TRUE(claimable(core.state, kSecond, kDevice)) << "8 + 5 + 9 pages, of which 5 are KV";
  core.wait(kSecond);
  core.claims.claim(kSecond, kDevice);
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_TRUE(core.evictions().empty());
  core.say_stepped_back();
  core.claims.advance();
  EXPECT_EQ(core.loads(), kSecondBlock);
  EXPECT_TRUE(core.at(kGroup).staged()) << "its weights stay";
}

TEST(BesideGroups, APinnedOneThatIsBusyIsDrainedAndStepsBack) {
  TwoGroups core;
  core.serve_group();
  core.model(kGroup).config.pin = true;
  core.hold(kShard, kOther, 5);
  const RequestId runs = core.run(kGroup);
  core.wait(kSecond);
  core.pass(1s);
  core.claims.claim(kSecond, kDevice);
  EXPECT_TRUE(core.at(kGroup).is<Draining>());
  core.finish(runs);
  core.claims.advance();
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_TRUE(core.evictions().empty());
}

TEST(BesideGroups, APinnedOneWhoseWeightsAreInTheWayIsNotAskedToLeave) {
  TwoGroups core;
  core.resize(kOther, 16);
  core.serve_group();
  core.model(kGroup).config.pin = true;
  EXPECT_FALSE(claimable(core.state, kSecond, kDevice)) << "8 + 9 pages";
}

// ---- Stepping back for another ----

TEST(BesideGroups, AnIdleGroupOfAnotherLeaderStepsBackAndItsShardsStay) {
  TwoGroups core;
  core.lead_apart();
  core.serve_group();
  core.wait(kSecond);
  core.claims.claim(kSecond, kOther);
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.loads().empty()) << "before it has";
  core.say_stepped_back();
  EXPECT_TRUE(core.at(kGroup).staged());
  EXPECT_TRUE(core.at(kShard, kOther).staged());
  EXPECT_EQ(core.model(kGroup).step_backs, 1U);
  core.claims.advance();
  EXPECT_EQ(core.loads(), (Spots{{kOther, kSecond}, {kDevice, kSecondShard}}));
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_EQ(start_kind(core.state, kGroup, core.device()), StartKind::kHit);
}

TEST(BesideGroups, OneThatFillsItsDevicesIsNoReasonToFail) {
  TwoGroups core;
  core.lead_apart();
  core.serve_group();
  core.hold(kGroup, kDevice, 12);
  core.hold(kShard, kOther, 12);
  core.wait(kSecond);
  place(core.all_parts);
  EXPECT_TRUE(core.failed().empty());
  EXPECT_EQ(core.told_to_step_back(), kFirst);
}

TEST(BesideGroups, ABusyOneIsDrainedFirst) {
  TwoGroups core;
  core.lead_apart();
  core.serve_group();
  const RequestId runs = core.run(kGroup);
  core.wait(kSecond);
  core.pass(1s);
  core.claims.claim(kSecond, kOther);
  EXPECT_TRUE(core.at(kGroup).is<Draining>());
  EXPECT_TRUE(core.told_to_step_back().empty());
  core.finish(runs);
  core.claims.advance();
  EXPECT_EQ(core.told_to_step_back(), kFirst);
}

TEST(BesideGroups, WhereNotEvenItsShardsHaveRoomItGoes) {
  TwoGroups core;
  core.lead_apart();
  core.resize(kOther, 16);
  core.serve_group();
  core.wait(kSecond);
  core.claims.claim(kSecond, kOther);
  EXPECT_TRUE(core.told_to_step_back().empty());
  EXPECT_EQ(core.evictions(), kFirst);
}

TEST(BesideGroups, WhoseKvIsAllThatLacksStepsBack) {
  TwoGroups core;
  core.serve_group();
  core.hold(kShard, kOther, 8);
  core.wait(kSecond);
  core.claims.claim(kSecond, kDevice);
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_TRUE(core.evictions().empty());
  core.say_stepped_back();
  core.claims.advance();
  EXPECT_EQ(core.loads(), kSecondBlock);
}

TEST(BesideGroups, AClaimThatIsGivenUpLeavesItStaged) {
  TwoGroups core;
  core.lead_apart();
  core.serve_group();
  core.wait(kSecond);
  core.claims.claim(kSecond, kOther);
  core.claims.cancel(kSecond);
  EXPECT_TRUE(core.at(kGroup).is<SteppingBack>()) << "its worker has been told";
  core.say_stepped_back();
  EXPECT_TRUE(core.at(kGroup).staged());
}

TEST(BesideGroups, WithoutOneOfItsWorkersItGoes) {
  TwoGroups core;
  core.lead_apart();
  core.serve_group();
  core.wait(kSecond);
  core.claims.claim(kSecond, kOther);
  core.residency.forget(kOther, kShard);
  tend_groups(core.all_parts);
  EXPECT_EQ(core.evictions(), kFirst);
  core.say_stepped_back();
  EXPECT_TRUE(core.at(kGroup).is<Evicting>()) << "that comes too late";
}

TEST(BesideGroups, OneThatAManagerBeforeWantedToStepBackGoesWithWhatIsOnItsWayThere) {
  TwoGroups core;
  core.serve_group();
  core.run(kGroup);
  core.say_stepped_back();
  EXPECT_EQ(core.evictions(), kFirst);
}

TEST(BesideGroups, OneThatIsUnloadedMeanwhileIsEvictedOnceItHasSteppedBack) {
  TwoGroups core;
  core.lead_apart();
  core.serve_group();
  core.wait(kSecond);
  core.claims.claim(kSecond, kOther);
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kGroup});
  unload(core.all_parts);
  EXPECT_TRUE(core.evictions().empty());
  core.say_stepped_back();
  unload(core.all_parts);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kGroup}, {kOther, kShard}}));
}

// ---- Stepping back for others' KV ----

TEST(BesideGroups, AnIdleOneStepsBackForKvThatAnotherLacks) {
  TwoGroups core;
  core.serve_group();
  core.serve_group(kDevice, kSecond, kSecondShard);
  core.run(kSecond);
  core.hold(kGroup, kDevice, 2);
  core.devices.usage(kDevice, {.total = 20, .free = 0});
  core.shortages.heard(kDevice, {.short_sequences = 1, .short_pages = 3, .short_model = kSecond});
  core.commands.clear();
  lend(core.all_parts);
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_TRUE(core.evictions().empty());
  lend(core.all_parts);
  EXPECT_EQ(core.told_to_step_back().size(), 1U) << "it is awaited";
}

TEST(BesideGroups, ABusyOneKeepsItsKv) {
  TwoGroups core;
  core.serve_group();
  core.serve_group(kDevice, kSecond, kSecondShard);
  core.run(kSecond);
  core.run(kGroup);
  core.hold(kGroup, kDevice, 2);
  EXPECT_TRUE(idle_shares(core.state, core.device()).empty());
}

TEST(BesideGroups, WhoseOldestRequestCannotGoOnHasIdleOnesStepBack) {
  TwoGroups core;
  core.serve_group();
  core.serve_group(kDevice, kSecond, kSecondShard);
  core.run(kSecond);
  core.hold(kGroup, kDevice, 2);
  core.hold(kShard, kOther, 2);
  core.devices.usage(kDevice, {.total = 20, .free = 0});
  core.devices.usage(kOther, {.total = 20, .free = 0});
  core.plans.want_pages(kDevice, {.pages_wanted = 2, .wanted_by = kSecond});
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_TRUE(core.evictions().empty());
}

TEST(BesideGroups, WhereTheirKvIsTooLittleTheyGo) {
  TwoGroups core;
  core.serve_group();
  core.serve_group(kDevice, kSecond, kSecondShard);
  core.run(kSecond);
  core.hold(kGroup, kDevice, 2);
  core.devices.usage(kDevice, {.total = 20, .free = 0});
  core.devices.usage(kOther, {.total = 20, .free = 20});
  core.plans.want_pages(kDevice, {.pages_wanted = 3, .wanted_by = kSecond});
  EXPECT_TRUE(core.told_to_step_back().empty());
  EXPECT_EQ(core.evictions(), kFirst);
}

TEST(BesideGroups, AModelOnOneDeviceHasItsKvToo) {
  TwoGroups core;
  core.serve_group();
  core.serve(kA);
  core.run(kA);
  core.hold(kGroup, kDevice, 2);
  core.plans.want_pages(kDevice, {.pages_wanted = 2, .wanted_by = kA});
  EXPECT_EQ(core.told_to_step_back(), kFirst);
  EXPECT_FALSE(core.device().plan.has_value());
}

// ---- The whole manager ----

constexpr ModelId kOne{4};
constexpr ModelId kOnesShard{5};
constexpr ModelId kTwo{6};
constexpr ModelId kTwosShard{7};

std::size_t loads_of(const core::test::Bench& bench, std::vector<ModelId> models) {
  return static_cast<std::size_t>(std::ranges::count_if(bench.said, [&](const auto& command) {
    const auto* load = std::get_if<LoadOn>(&command);
    return load != nullptr && std::ranges::count(models, load->model) > 0;
  }));
}

TEST(BesideGroups, ByTurnsEachIsLoadedOnce) {
  core::test::Bench bench(2, {});
  bench.add_sharded(kOne, kOnesShard, 8, true);
  bench.add_sharded(kTwo, kTwosShard, 8, true);
  for (int turn = 0; turn < 4; ++turn) {
    bench.serve(kOne, 5s);
    bench.serve(kTwo, 5s);
  }
  EXPECT_EQ(loads_of(bench, {kOne, kOnesShard, kTwo, kTwosShard}), 4U);
  EXPECT_TRUE(bench.decisions(DecisionKind::kEvict).empty());
}

// Their weights have room beside each other, and KV of one.
TEST(BesideGroups, WithoutRoomForKvOfBothTheyStepBackByTurns) {
  core::test::Bench bench(2, {});
  bench.add_sharded(kOne, kOnesShard, 8, true);
  bench.add_sharded(kTwo, kTwosShard, 8, true);
  bench.kv_pages = 4;
  for (int turn = 0; turn < 4; ++turn) {
    bench.serve(kOne, 5s);
    bench.serve(kTwo, 5s);
  }
  EXPECT_EQ(loads_of(bench, {kOne, kOnesShard, kTwo, kTwosShard}), 4U);
  EXPECT_GE(bench.decisions(DecisionKind::kStepBack).size(), 6U);
  std::uint64_t counted = 0;
  for (const ModelStatus& model : bench.core.models()) {
    counted += model.step_backs;
  }
  EXPECT_EQ(counted, bench.decisions(DecisionKind::kStepBack).size());
  EXPECT_GE(bench.starts(kOne, StartKind::kHit), 3U);
}

}  // namespace
}  // namespace heddle::core::manager
