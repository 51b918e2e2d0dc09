#include "policy/prewarm.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr PrewarmOptions kPaper{.score = ScoreVariant::kPaper, .placement = PrewarmVariant::kPaper};
constexpr PrewarmOptions kCorrected{};

ReplicaMap servers(std::uint64_t count, std::uint64_t devices, std::int64_t pages) {
  std::vector<MapDevice> all;
  for (std::uint64_t i = 0; i < count * devices; ++i) {
    all.push_back(
        {.id = DeviceId(i), .server = static_cast<std::int64_t>(i / devices), .free_pages = pages});
  }
  return ReplicaMap(all);
}

ModelDemand demand(std::uint64_t model, double load, std::int64_t devices, std::int64_t pages) {
  return {.model = ModelId(model),
          .mean_load = load,
          .peak_load = load,
          .batch = 32,
          .devices = devices,
          .pages_per_device = pages,
          .load_time = 1s};
}

PlacedReplica replica(std::uint64_t id,
                      std::uint64_t model,
                      std::uint64_t device,
                      std::int64_t pages) {
  return {
      .id = ReplicaId(id), .model = ModelId(model), .devices = {DeviceId(device)}, .pages = pages};
}

std::vector<PrewarmDecision> of(const std::vector<PrewarmDecision>& plan, PrewarmAction action) {
  std::vector<PrewarmDecision> some;
  std::copy_if(plan.begin(), plan.end(), std::back_inserter(some), [&](const PrewarmDecision& d) {
    return d.action == action;
  });
  return some;
}

TEST(PlanPrewarm, TheDevicesWhereItIsLoadedSoonestAreTriedFirst) {
  ReplicaMap map = servers(2, 2, 100);
  map.place(replica(7, 9, 2, 50));  // Device 2 has room, and something worthless in it.
  std::vector<ModelDemand> models = {demand(0, 1, 1, 80)};
  models[0].near = {DeviceId(2)};
  const auto near = of(plan_prewarm(map, models, kCorrected), PrewarmAction::kLoad);
  ASSERT_EQ(near.size(), 1U);
  EXPECT_EQ(near[0].devices, std::vector{DeviceId(2)});
  EXPECT_EQ(near[0].reason, PrewarmReason::kMadeRoom);
  ReplicaMap pinned = servers(2, 2, 100);
  PlacedReplica stays = replica(7, 9, 2, 50);
  stays.pinned = true;
  pinned.place(stays);
  const auto far = of(plan_prewarm(pinned, models, kCorrected), PrewarmAction::kLoad);
  ASSERT_EQ(far.size(), 1U);
  EXPECT_NE(far[0].devices, std::vector{DeviceId(2)}) << "there is no room";
}

// The four models of WarmServe's Table 1 on one server of 8: the hot ones lie apart.
TEST(PlanPrewarm, HighScoresGetDevicesOfTheirOwn) {
  const ReplicaMap map = servers(1, 8, 1000);
  std::vector<ModelDemand> models = {
      demand(0, 20, 1, 100), demand(1, 20, 1, 100), demand(2, 20, 2, 100), demand(3, 20, 4, 250)};
  models[3].load_time = 4s;
  models[2].load_time = 2s;
  const auto plan = plan_prewarm(map, models, kPaper);
  ASSERT_EQ(plan.size(), 4U);
  std::vector<DeviceId> used;
  for (const PrewarmDecision& decision : plan) {
    EXPECT_EQ(decision.action, PrewarmAction::kLoad);
    EXPECT_EQ(decision.reason, PrewarmReason::kIsolated);
    used.insert(used.end(), decision.devices.begin(), decision.devices.end());
  }
  std::sort(used.begin(), used.end());
  EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end()) << "no device is shared";
  EXPECT_EQ(plan[0].model, ModelId(3)) << "the longest to load comes first";
}

TEST(PlanPrewarm, LowScoresShareWithTheLeastWhenThereAreNoFreeDevices) {
  const ReplicaMap map = servers(1, 2, 1000);
  std::vector<ModelDemand> models = {
      demand(0, 20, 1, 100), demand(1, 20, 1, 100), demand(2, 20, 1, 100)};
  models[0].load_time = 3s;
  models[1].load_time = 2s;
  const auto plan = plan_prewarm(map, models, kPaper);
  EXPECT_EQ(plan[0].devices, std::vector{DeviceId(0)});
  EXPECT_EQ(plan[1].devices, std::vector{DeviceId(1)});
  EXPECT_EQ(plan[2].devices, std::vector{DeviceId(1)});
  EXPECT_EQ(plan[2].reason, PrewarmReason::kShared);
}

TEST(PlanPrewarm, ExistingReplicasFillTheFirstRanksAndSurplusOnesAreWorthNothing) {
  ReplicaMap map = servers(1, 4, 1000);
  map.place(replica(5, 0, 3, 100));
  PlacedReplica loading = replica(4, 0, 2, 100);
  loading.state = ReplicaState::kLoading;
  map.place(loading);
  map.place(replica(6, 1, 2, 100));  // Nobody wants this one.
  const std::vector<ModelDemand> models = {demand(0, 90, 1, 100), demand(1, 0, 1, 100)};
  const auto plan = plan_prewarm(map, models, kPaper);
  const auto keeps = of(plan, PrewarmAction::kKeep);
  ASSERT_EQ(keeps.size(), 3U);
  EXPECT_EQ(keeps[1].replica, ReplicaId(5));
  EXPECT_EQ(keeps[1].rank, 0) << "a loaded one before one that loads";
  EXPECT_EQ(keeps[0].rank, 1);
  EXPECT_GT(keeps[1].worth, keeps[0].worth);
  EXPECT_EQ(keeps[2].reason, PrewarmReason::kSurplus);
  EXPECT_EQ(keeps[2].worth, ReplicaWorth{});
  const auto loads = of(plan, PrewarmAction::kLoad);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_EQ(loads[0].rank, 2);
  EXPECT_EQ(loads[0].devices, std::vector{DeviceId(0)});
}

TEST(PlanPrewarm, OnlyCorrectedEvictsTheSurplusToMakeRoom) {
  ReplicaMap map = servers(1, 1, 100);
  map.place(replica(1, 1, 0, 80));
  const std::vector<ModelDemand> models = {demand(0, 20, 1, 50)};
  const auto paper = plan_prewarm(map, models, kPaper);
  EXPECT_EQ(of(paper, PrewarmAction::kSkip).size(), 1U);
  EXPECT_TRUE(of(paper, PrewarmAction::kEvict).empty());
  const auto corrected = plan_prewarm(map, models, kCorrected);
  ASSERT_EQ(corrected.size(), 2U);
  EXPECT_EQ(corrected[0].action, PrewarmAction::kEvict);
  EXPECT_EQ(corrected[0].replica, ReplicaId(1));
  EXPECT_EQ(corrected[0].made_room_for, ModelId(0));
  EXPECT_EQ(corrected[1].action, PrewarmAction::kLoad);
  EXPECT_EQ(corrected[1].reason, PrewarmReason::kMadeRoom);
}

TEST(PlanPrewarm, WhatAReplicaWasWorthBeforeDoesNotCount) {
  ReplicaMap map = servers(1, 1, 100);
  PlacedReplica stale = replica(1, 1, 0, 80);
  stale.worth = {.tier = 1, .score = 99};
  map.place(stale);
  const std::vector<ModelDemand> models = {demand(0, 20, 1, 50)};
  EXPECT_EQ(of(plan_prewarm(map, models, kCorrected), PrewarmAction::kEvict).size(), 1U);
}

TEST(PlanPrewarm, WhereItIsKnownWhatReplicasAreWorthThatCounts) {
  ReplicaMap map = servers(1, 2, 100);
  PlacedReplica surplus = replica(1, 1, 0, 80);  // Nobody's rank, by the demands.
  surplus.worth = {.score = 0.9};
  map.place(surplus);
  PlacedReplica wanted = replica(2, 2, 1, 80);
  wanted.worth = {.score = 0.2};
  map.place(wanted);
  const std::vector<ModelDemand> models = {demand(0, 20, 1, 50), demand(2, 20, 1, 80)};
  const auto evicted = [&](bool known) {
    return of(plan_prewarm(map, models, {.score = ScoreVariant::kValue, .worth_known = known}),
              PrewarmAction::kEvict);
  };
  ASSERT_EQ(evicted(false).size(), 1U);
  EXPECT_EQ(evicted(false)[0].replica, ReplicaId(1));
  ASSERT_EQ(evicted(true).size(), 1U);
  EXPECT_EQ(evicted(true)[0].replica, ReplicaId(2));
}

TEST(PlanPrewarm, KeepsAwayFromInstancesThatServe) {
  ReplicaMap map = servers(1, 2, 100);
  PlacedReplica serving = replica(1, 1, 0, 20);
  serving.state = ReplicaState::kServing;
  serving.worth = {.score = 2};
  map.place(serving);
  map.place(replica(2, 2, 1, 20));
  std::vector<ModelDemand> models = {demand(0, 20, 1, 50), demand(2, 1, 1, 20)};
  models[1].load_time = 500ms;
  const auto loads =
      of(plan_prewarm(map, models, {.score = ScoreVariant::kValue}), PrewarmAction::kLoad);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_EQ(loads[0].devices, std::vector{DeviceId(1)})
      << "the idle one there is worth something, but less than what serves";
}

TEST(PlanPrewarm, RoomiestLooksAtRoomThenAtLastUse) {
  constexpr PrewarmOptions kRoomiest{.score = ScoreVariant::kValue,
                                     .placement = PrewarmVariant::kRoomiest};
  ReplicaMap map = servers(1, 2, 100);
  map.place(replica(1, 1, 0, 30));
  const std::vector<ModelDemand> models = {demand(0, 20, 1, 60)};
  EXPECT_EQ(of(plan_prewarm(map, models, kRoomiest), PrewarmAction::kLoad)[0].devices,
            std::vector{DeviceId(1)});
  PlacedReplica older = replica(2, 2, 0, 70);
  older.last_used = Instant(1s);
  PlacedReplica newer = replica(3, 3, 1, 100);
  newer.last_used = Instant(2s);
  map.place(older);
  map.place(newer);
  const auto plan = plan_prewarm(map, models, kRoomiest);
  const auto evicted = of(plan, PrewarmAction::kEvict);
  ASSERT_EQ(evicted.size(), 2U);
  EXPECT_EQ(evicted[0].replica, ReplicaId(1)) << "never used";
  EXPECT_EQ(evicted[1].replica, ReplicaId(2));
  std::vector<ModelDemand> both = {models[0], demand(2, 20, 1, 70)};
  both[1].load_time = 5s;
  const auto spared = of(plan_prewarm(map, both, kRoomiest), PrewarmAction::kEvict);
  ASSERT_EQ(spared.size(), 1U) << "what is worth more stays";
  EXPECT_EQ(spared[0].replica, ReplicaId(3));
}

// Devices 0 and 2, or 1 and 3, and no others: as devices of two kinds come, say.
TEST(PlanPrewarm, GroupsThatAreNamedAreTheOnlyOnes) {
  for (const auto placement : {PrewarmVariant::kCorrected, PrewarmVariant::kRoomiest}) {
    const PrewarmOptions options{.score = ScoreVariant::kValue, .placement = placement};
    ReplicaMap map = servers(1, 4, 100);
    PlacedReplica serving = replica(1, 1, 2, 60);
    serving.state = ReplicaState::kServing;
    serving.worth = {.score = 5};
    map.place(serving);
    std::vector<ModelDemand> models = {demand(0, 20, 2, 50)};
    models[0].blocks = {{DeviceId(0), DeviceId(2)}, {DeviceId(1), DeviceId(3)}};
    models[0].alone = true;
    const auto loads = of(plan_prewarm(map, models, options), PrewarmAction::kLoad);
    ASSERT_EQ(loads.size(), 1U);
    EXPECT_EQ(loads[0].devices, (std::vector{DeviceId(1), DeviceId(3)}));

    // Now there is no room, but for what nobody wants on 3.
    map.place(replica(2, 2, 3, 90));
    const auto plan = plan_prewarm(map, models, options);
    ASSERT_EQ(of(plan, PrewarmAction::kEvict).size(), 1U);
    EXPECT_EQ(of(plan, PrewarmAction::kEvict)[0].replica, ReplicaId(2));
    EXPECT_EQ(of(plan, PrewarmAction::kLoad)[0].devices, (std::vector{DeviceId(1), DeviceId(3)}));
  }
}

// Who needs a device of a group takes all of its worth.
TEST(PlanPrewarm, AGroupOfWorthIsSparedWhereSomethingElseCanGo) {
  ReplicaMap map = servers(1, 4, 100);
  PlacedReplica group = replica(1, 1, 0, 80);
  group.devices = {DeviceId(0), DeviceId(1)};
  group.worth = {.score = 0.8};
  map.place(group);
  PlacedReplica single = replica(2, 2, 2, 80);
  single.worth = {.score = 0.3};
  map.place(single);
  PlacedReplica other = replica(3, 3, 3, 80);
  other.worth = {.score = 0.9};
  map.place(other);
  const std::vector<ModelDemand> models = {demand(0, 20, 1, 50)};
  const auto evicted =
      of(plan_prewarm(map, models, {.score = ScoreVariant::kValue, .worth_known = true}),
         PrewarmAction::kEvict);
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_EQ(evicted[0].replica, ReplicaId(2));
}

TEST(PlanPrewarm, ADrainingInstanceIsTheReplicaThatItWillBe) {
  ReplicaMap map = servers(1, 2, 1000);
  PlacedReplica draining = replica(1, 0, 0, 100);
  draining.state = ReplicaState::kDraining;
  map.place(draining);
  const std::vector<ModelDemand> models = {demand(0, 20, 1, 100)};
  EXPECT_TRUE(plan_prewarm(map, models, kCorrected).empty());
  const auto paper = plan_prewarm(map, models, kPaper);
  ASSERT_EQ(paper.size(), 1U);
  EXPECT_EQ(paper[0].devices, std::vector{DeviceId(1)}) << "never twice on one device";
}

/// A random cluster with replicas, and the models it holds.
struct RandomCase {
  ReplicaMap map;
  std::vector<ModelDemand> models;
};

RandomCase random_case(Rng& rng) {
  RandomCase world{.map = servers(1 + rng.below(4), 1 + rng.below(8), 100), .models = {}};
  const std::array<std::int64_t, 5> shapes = {1, 1, 2, 4, 3};
  for (std::uint64_t m = 0; m < 1 + rng.below(25); ++m) {
    ModelDemand model = demand(m,
                               static_cast<double>(rng.below(120)),
                               shapes[rng.below(5)],
                               5 + static_cast<std::int64_t>(rng.below(40)));
    model.peak_load = model.mean_load * 2;
    model.load_time = 1ms * (1 + static_cast<std::int64_t>(rng.below(5000)));
    world.models.push_back(model);
  }
  const auto plan = plan_prewarm(world.map, world.models, kCorrected);
  std::uint64_t id = 0;
  for (const PrewarmDecision& load : plan) {  // A plan of before; some of it has gone since.
    if (load.action == PrewarmAction::kLoad && rng.below(3) != 0) {
      world.map.place({.id = ReplicaId(id++),
                       .model = load.model,
                       .state = rng.below(4) == 0 ? ReplicaState::kLoading : ReplicaState::kReady,
                       .devices = load.devices,
                       .pages = world.models[load.model.value()].pages_per_device});
    }
  }
  for (ModelDemand& model : world.models) {
    model.mean_load = static_cast<double>(rng.below(120));
    model.peak_load = model.mean_load * 1.5;
  }
  return world;
}

void expect_laminar(const std::vector<std::vector<ReplicaMap::Index>>& sets) {
  for (const auto& a : sets) {
    for (const auto& b : sets) {
      const std::size_t shared = ReplicaMap::overlap(a, b).count;
      ASSERT_TRUE(shared == 0 || shared == a.size() || shared == b.size());
    }
  }
}

// Properties of every plan, carried out step by step: pages never run out (ReplicaMap checks), sets
// stay laminar, no model is twice on a device, who is evicted was worth less than who comes.
TEST(PlanPrewarm, KeepsItsPromisesOnRandomClusters) {
  std::size_t evictions = 0;
  std::size_t loads = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const RandomCase world = random_case(rng);
    for (const PrewarmOptions& options : {kPaper, kCorrected}) {
      const auto plan = plan_prewarm(world.map, world.models, options);
      ReplicaMap map = world.map;
      std::uint64_t id = 1000;
      std::vector<PrewarmDecision> evicted;
      for (const PrewarmDecision& decision : plan) {
        if (decision.action == PrewarmAction::kEvict) {
          evicted.push_back(decision);
          map.remove(decision.replica);
          ++evictions;
        } else if (decision.action == PrewarmAction::kLoad) {
          LostWorth lost;
          for (const PrewarmDecision& victim : evicted) {
            ASSERT_EQ(victim.made_room_for, decision.model);
            ASSERT_LT(victim.worth, decision.worth);
            lost.add(victim.worth);
          }
          LostWorth gained;
          gained.add(decision.worth);
          ASSERT_TRUE(evicted.empty() || lost < gained);
          evicted.clear();
          std::vector<ReplicaMap::Index> group;
          for (const DeviceId device : decision.devices) {
            group.push_back(map.index_of(device));
          }
          ASSERT_FALSE(map.holds(group, decision.model));
          map.place({.id = ReplicaId(id++),
                     .model = decision.model,
                     .devices = decision.devices,
                     .pages = world.models[decision.model.value()].pages_per_device});
          ++loads;
        }
      }
      ASSERT_TRUE(evicted.empty());
      std::vector<std::vector<ReplicaMap::Index>> sets;
      for (const ReplicaId placed : map.replicas()) {
        sets.push_back(map.entry(placed).devices);
      }
      expect_laminar(sets);
      ASSERT_EQ(plan, plan_prewarm(world.map, world.models, options)) << "same input, same plan";
    }
  }
  EXPECT_GT(evictions, 100U);
  EXPECT_GT(loads, 1000U);
}

// Property: every desired replica is kept, loaded or skipped, once.
TEST(PlanPrewarm, AccountsForEveryDesiredReplica) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const RandomCase world = random_case(rng);
    const auto plan = plan_prewarm(world.map, world.models, kCorrected);
    for (const ModelDemand& model : world.models) {
      const auto desired = desired_replicas(model, kCorrected.score);
      std::vector<std::int64_t> ranks;
      for (const PrewarmDecision& decision : plan) {
        if (decision.model == model.model && decision.action != PrewarmAction::kEvict &&
            decision.reason != PrewarmReason::kSurplus) {
          ranks.push_back(decision.rank);
        }
      }
      const auto lost = std::count_if(plan.begin(), plan.end(), [&](const PrewarmDecision& d) {
        return d.action == PrewarmAction::kEvict && d.model == model.model &&
               d.worth > ReplicaWorth{};
      });
      std::sort(ranks.begin(), ranks.end());
      ASSERT_EQ(std::adjacent_find(ranks.begin(), ranks.end()), ranks.end());
      ASSERT_EQ(static_cast<std::int64_t>(ranks.size()) + lost, std::ssize(desired));
    }
  }
}

}  // namespace
}  // namespace heddle::policy
