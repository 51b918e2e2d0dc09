#include "policy/launch.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

ReplicaMap one_server(std::uint64_t devices) {
  std::vector<MapDevice> all;
  for (std::uint64_t i = 0; i < devices; ++i) {
    all.push_back({.id = DeviceId(i), .free_pages = 100});
  }
  return ReplicaMap(all);
}

void put(ReplicaMap& map,
         std::uint64_t id,
         std::uint64_t model,
         std::vector<std::uint64_t> devices,
         double score,
         ReplicaState state = ReplicaState::kReady) {
  PlacedReplica replica{.id = ReplicaId(id),
                        .model = ModelId(model),
                        .state = state,
                        .pages = 10,
                        .worth = {.score = score}};
  for (const std::uint64_t device : devices) {
    replica.devices.emplace_back(device);
  }
  map.place(replica);
}

Launch launch(const ReplicaMap& map,
              std::uint64_t model,
              std::int64_t devices = 1,
              LaunchVariant variant = LaunchVariant::kLeastLost) {
  return choose_launch(map, {.model = ModelId(model), .devices = devices, .pages = 50}, variant);
}

TEST(ChooseLaunch, HitsTheReplicaWhoseNeighboursAreWorthLeast) {
  ReplicaMap map = one_server(3);
  put(map, 1, 7, {0}, 5);
  put(map, 2, 7, {1}, 5);
  put(map, 3, 8, {0}, 3);
  put(map, 4, 9, {1, 2}, 1);
  const Launch chosen = launch(map, 7);
  EXPECT_EQ(chosen.outcome, LaunchOutcome::kHit);
  EXPECT_EQ(chosen.replica, ReplicaId(2));
  EXPECT_EQ(chosen.devices, std::vector{DeviceId(1)});
  EXPECT_EQ(chosen.dies, std::vector{ReplicaId(4)}) << "its other part is useless alone";
  EXPECT_EQ(chosen.lost, (LostWorth{.burst = 1}));
  EXPECT_EQ(launch(map, 7, 1, LaunchVariant::kFirst).replica, ReplicaId(1));
}

TEST(ChooseLaunch, AttachesToALoadOnlyWithoutAHit) {
  ReplicaMap map = one_server(2);
  put(map, 1, 7, {0}, 5, ReplicaState::kLoading);
  EXPECT_EQ(launch(map, 7).outcome, LaunchOutcome::kAttach);
  EXPECT_EQ(launch(map, 7).replica, ReplicaId(1));
  put(map, 2, 7, {1}, 5);
  put(map, 3, 8, {1}, 50);
  EXPECT_EQ(launch(map, 7).replica, ReplicaId(2)) << "a hit is worth what it costs";
}

TEST(ChooseLaunch, AReplicaOnATakenDeviceIsNoHit) {
  ReplicaMap map = one_server(2);
  put(map, 1, 7, {0}, 5);
  map.set_device({.id = DeviceId(0), .free_pages = 90, .launchable = false});
  const Launch chosen = launch(map, 7);
  EXPECT_EQ(chosen.outcome, LaunchOutcome::kMiss);
  EXPECT_EQ(chosen.devices, std::vector{DeviceId(1)});
}

TEST(ChooseLaunch, AMissTakesTheGroupWithTheLeastLost) {
  ReplicaMap map = one_server(4);
  put(map, 1, 1, {0}, 4);
  put(map, 2, 2, {1}, 4);
  put(map, 3, 3, {2, 3}, 7);
  const Launch chosen = launch(map, 9, 2);
  EXPECT_EQ(chosen.outcome, LaunchOutcome::kMiss);
  EXPECT_EQ(chosen.devices, (std::vector{DeviceId(2), DeviceId(3)}));
  EXPECT_EQ(chosen.dies, std::vector{ReplicaId(3)});
  put(map, 4, 4, {2}, 2);
  EXPECT_EQ(launch(map, 9, 2).devices, (std::vector{DeviceId(0), DeviceId(1)}));
  // The code counts replicas instead: 2 each, so the first group.
  EXPECT_EQ(launch(map, 9, 2, LaunchVariant::kFirst).devices.front(), DeviceId(0));
}

TEST(ChooseLaunch, FragmentsAreUsedWhenNoAlignedBlockIsLeft) {
  ReplicaMap map = one_server(4);
  map.set_device({.id = DeviceId(0), .free_pages = 100, .launchable = false});
  map.set_device({.id = DeviceId(2), .free_pages = 100, .launchable = false});
  EXPECT_EQ(launch(map, 9, 2).devices, (std::vector{DeviceId(1), DeviceId(3)}));
  EXPECT_EQ(launch(map, 9, 3).outcome, LaunchOutcome::kWait);
}

TEST(ChooseLaunch, NeverTakesInstancesOrPinnedReplicas) {
  ReplicaMap map = one_server(2);
  put(map, 1, 1, {0}, 0, ReplicaState::kDraining);
  PlacedReplica pinned{.id = ReplicaId(2),
                       .model = ModelId(2),
                       .devices = {DeviceId(1)},
                       .pages = 10,
                       .pinned = true};
  map.place(pinned);
  EXPECT_EQ(launch(map, 9).outcome, LaunchOutcome::kWait);
  EXPECT_EQ(launch(map, 2).outcome, LaunchOutcome::kHit);
}

TEST(ChooseLaunch, WaitsWhereTheModelDoesNotFit) {
  ReplicaMap map = one_server(1);
  put(map, 1, 1, {0}, 0);  // 90 free and 10 that would be.
  const auto want = [](std::int64_t pages) {
    return LaunchWant{.model = ModelId(9), .pages = pages};
  };
  EXPECT_EQ(choose_launch(map, want(100), LaunchVariant::kLeastLost).outcome, LaunchOutcome::kMiss);
  EXPECT_EQ(choose_launch(map, want(101), LaunchVariant::kLeastLost).outcome, LaunchOutcome::kWait);
}

TEST(PartialLoad, FirstTokenIsTheSlowestLayersPath) {
  // 4 layers, 1 there, 10 ms to load each, 2 ms to run each: the last is there after 30 ms.
  const PartialLoad load{.layers = 4, .resident = 1, .layer_load = 10ms, .layer_prefill = 2ms};
  EXPECT_EQ(first_token_after(load), 32ms);
  PartialLoad fast = load;
  fast.layer_load = 1ms;
  EXPECT_EQ(first_token_after(fast), 8ms);  // Nothing waits.
  fast.resident = 0;
  EXPECT_EQ(first_token_after(fast), 9ms);  // But for the first layer.
  fast.resident = 4;
  EXPECT_EQ(first_token_after(fast), 8ms);
}

// Property: with so many layers nothing stalls, with one fewer something does.
TEST(PartialLoad, LayersToStartAreJustEnough) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    PartialLoad load{.layers = 1 + static_cast<std::int64_t>(rng.below(80)),
                     .layer_load = Duration(1 + static_cast<std::int64_t>(rng.below(100))),
                     .layer_prefill = Duration(1 + static_cast<std::int64_t>(rng.below(30)))};
    load.resident = resident_layers_to_start(load);
    ASSERT_GE(load.resident, 1);
    ASSERT_LE(load.resident, load.layers);
    ASSERT_EQ(first_token_after(load), load.layer_prefill * load.layers);
    --load.resident;
    ASSERT_GT(first_token_after(load), load.layer_prefill * load.layers);
  }
}

}  // namespace
}  // namespace heddle::policy
