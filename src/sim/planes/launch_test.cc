#include "sim/planes/launch.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

policy::ReplicaMap one_server(std::uint64_t devices) {
  std::vector<policy::MapDevice> all;
  for (std::uint64_t i = 0; i < devices; ++i) {
    all.push_back({.id = DeviceId(i), .free_pages = 100});
  }
  return policy::ReplicaMap(all);
}

void put(policy::ReplicaMap& map,
         std::uint64_t id,
         std::uint64_t model,
         std::vector<std::uint64_t> devices,
         double score,
         policy::ReplicaState state = policy::ReplicaState::kReady) {
  policy::PlacedReplica replica{.id = policy::ReplicaId(id),
                                .model = ModelId(model),
                                .state = state,
                                .pages = 10,
                                .worth = {.score = score}};
  for (const std::uint64_t device : devices) {
    replica.devices.emplace_back(device);
  }
  map.place(replica);
}

Launch launch(const policy::ReplicaMap& map,
              std::uint64_t model,
              std::int64_t devices = 1,
              LaunchVariant variant = LaunchVariant::kLeastLost) {
  return choose_launch(map, {.model = ModelId(model), .devices = devices, .pages = 50}, variant);
}

TEST(ChooseLaunch, HitsTheReplicaWhoseNeighboursAreWorthLeast) {
  policy::ReplicaMap map = one_server(3);
  put(map, 1, 7, {0}, 5);
  put(map, 2, 7, {1}, 5);
  put(map, 3, 8, {0}, 3);
  put(map, 4, 9, {1, 2}, 1);
  const Launch chosen = launch(map, 7);
  EXPECT_EQ(chosen.outcome, LaunchOutcome::kHit);
  EXPECT_EQ(chosen.replica, policy::ReplicaId(2));
  EXPECT_EQ(chosen.devices, std::vector{DeviceId(1)});
  EXPECT_EQ(chosen.dies, std::vector{policy::ReplicaId(4)}) << "its other part is useless alone";
  EXPECT_EQ(chosen.lost, (policy::LostWorth{.burst = 1}));
  EXPECT_EQ(launch(map, 7, 1, LaunchVariant::kFirst).replica, policy::ReplicaId(1));
}

TEST(ChooseLaunch, AttachesToALoadOnlyWithoutAHit) {
  policy::ReplicaMap map = one_server(2);
  put(map, 1, 7, {0}, 5, policy::ReplicaState::kLoading);
  EXPECT_EQ(launch(map, 7).outcome, LaunchOutcome::kAttach);
  EXPECT_EQ(launch(map, 7).replica, policy::ReplicaId(1));
  put(map, 2, 7, {1}, 5);
  put(map, 3, 8, {1}, 50);
  EXPECT_EQ(launch(map, 7).replica, policy::ReplicaId(2)) << "a hit is worth what it costs";
}

TEST(ChooseLaunch, AReplicaOnATakenDeviceIsNoHit) {
  policy::ReplicaMap map = one_server(2);
  put(map, 1, 7, {0}, 5);
  map.set_device({.id = DeviceId(0), .free_pages = 90, .launchable = false});
  const Launch chosen = launch(map, 7);
  EXPECT_EQ(chosen.outcome, LaunchOutcome::kMiss);
  EXPECT_EQ(chosen.devices, std::vector{DeviceId(1)});
}

TEST(ChooseLaunch, AMissTakesTheGroupWithTheLeastLost) {
  policy::ReplicaMap map = one_server(4);
  put(map, 1, 1, {0}, 4);
  put(map, 2, 2, {1}, 4);
  put(map, 3, 3, {2, 3}, 7);
  const Launch chosen = launch(map, 9, 2);
  EXPECT_EQ(chosen.outcome, LaunchOutcome::kMiss);
  EXPECT_EQ(chosen.devices, (std::vector{DeviceId(2), DeviceId(3)}));
  EXPECT_EQ(chosen.dies, std::vector{policy::ReplicaId(3)});
  put(map, 4, 4, {2}, 2);
  EXPECT_EQ(launch(map, 9, 2).devices, (std::vector{DeviceId(0), DeviceId(1)}));
  // The code counts replicas instead: 2 each, so the first group.
  EXPECT_EQ(launch(map, 9, 2, LaunchVariant::kFirst).devices.front(), DeviceId(0));
}

TEST(ChooseLaunch, FragmentsAreUsedWhenNoAlignedBlockIsLeft) {
  policy::ReplicaMap map = one_server(4);
  map.set_device({.id = DeviceId(0), .free_pages = 100, .launchable = false});
  map.set_device({.id = DeviceId(2), .free_pages = 100, .launchable = false});
  EXPECT_EQ(launch(map, 9, 2).devices, (std::vector{DeviceId(1), DeviceId(3)}));
  EXPECT_EQ(launch(map, 9, 3).outcome, LaunchOutcome::kWait);
}

TEST(ChooseLaunch, NeverTakesInstancesOrPinnedReplicas) {
  policy::ReplicaMap map = one_server(2);
  put(map, 1, 1, {0}, 0, policy::ReplicaState::kDraining);
  policy::PlacedReplica pinned{.id = policy::ReplicaId(2),
                               .model = ModelId(2),
                               .devices = {DeviceId(1)},
                               .pages = 10,
                               .pinned = true};
  map.place(pinned);
  EXPECT_EQ(launch(map, 9).outcome, LaunchOutcome::kWait);
  EXPECT_EQ(launch(map, 2).outcome, LaunchOutcome::kHit);
}

TEST(ChooseLaunch, WaitsWhereTheModelDoesNotFit) {
  policy::ReplicaMap map = one_server(1);
  put(map, 1, 1, {0}, 0);  // 90 free and 10 that would be.
  const auto want = [](std::int64_t pages) {
    return LaunchWant{.model = ModelId(9), .pages = pages};
  };
  EXPECT_EQ(choose_launch(map, want(100), LaunchVariant::kLeastLost).outcome, LaunchOutcome::kMiss);
  EXPECT_EQ(choose_launch(map, want(101), LaunchVariant::kLeastLost).outcome, LaunchOutcome::kWait);
}

}  // namespace
}  // namespace heddle::sim
