#include "policy/replica_map.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using Group = std::vector<ReplicaMap::Index>;

/// Two servers of four devices, ids 0 to 7, 100 pages free on each.
ReplicaMap two_servers() {
  std::vector<MapDevice> devices;
  for (std::uint64_t i = 0; i < 8; ++i) {
    devices.push_back({.id = DeviceId(7 - i),  // Any order will do.
                       .server = static_cast<std::int64_t>((7 - i) / 4),
                       .free_pages = 100});
  }
  return ReplicaMap(devices);
}

PlacedReplica replica(std::uint64_t id,
                      std::uint64_t model,
                      std::vector<DeviceId> devices,
                      ReplicaWorth worth = {}) {
  return {.id = ReplicaId(id),
          .model = ModelId(model),
          .devices = std::move(devices),
          .pages = 10,
          .worth = worth};
}

TEST(ReplicaMap, IndexesDevicesServerByServer) {
  const ReplicaMap map = two_servers();
  ASSERT_EQ(map.servers().size(), 2U);
  EXPECT_EQ(map.servers()[1].first, 4U);
  EXPECT_EQ(map.servers()[1].count, 4U);
  EXPECT_EQ(map.devices()[3].id, DeviceId(3));
  EXPECT_EQ(map.index_of(DeviceId(6)), 6U);
  EXPECT_EQ(map.server_of(6).first, 4U);
}

TEST(ReplicaMap, PlacingTakesPagesAndRemovingReturnsThem) {
  ReplicaMap map = two_servers();
  map.place(replica(1, 1, {DeviceId(1), DeviceId(0)}));
  map.add(replica(2, 1, {DeviceId(1)}));  // Its pages were not free before.
  EXPECT_EQ(map.devices()[0].free_pages, 90);
  EXPECT_EQ(map.devices()[1].free_pages, 90);
  EXPECT_EQ(map.devices()[2].free_pages, 100);
  EXPECT_EQ(map.of_model(ModelId(1)), (std::vector{ReplicaId(1), ReplicaId(2)}));
  map.remove(ReplicaId(2));
  map.remove(ReplicaId(1));
  EXPECT_EQ(map.devices()[0].free_pages, 100);
  EXPECT_EQ(map.devices()[1].free_pages, 110);
  EXPECT_TRUE(map.of_model(ModelId(1)).empty());
  EXPECT_TRUE(map.replicas().empty());
}

TEST(ReplicaMap, CountsEachReplicaOfAGroupOnce) {
  ReplicaMap map = two_servers();
  map.place(replica(1, 1, {DeviceId(0), DeviceId(1)}, {.tier = 0, .score = 5}));
  map.place(replica(2, 2, {DeviceId(1)}, {.tier = 1, .score = 2}));
  map.place(replica(3, 3, {DeviceId(2)}, {.tier = 0, .score = 1}));
  const GroupLook look = map.look(Group{0, 1});
  EXPECT_EQ(look.replicas, 2);
  EXPECT_EQ(look.score_sum, 7);
  EXPECT_EQ(look.highest, (ReplicaWorth{.tier = 1, .score = 2}));
  EXPECT_EQ(look.cheapest, (ReplicaWorth{.tier = 0, .score = 5}));
  EXPECT_EQ(look.free_pages, 80);
  EXPECT_EQ(map.look(Group{0, 1, 2, 3}).replicas, 3);
  EXPECT_EQ(map.touching(Group{1, 2}), (std::vector{ReplicaId(1), ReplicaId(2), ReplicaId(3)}));
}

TEST(ReplicaMap, KnowsNestedFromCrossing) {
  ReplicaMap map = two_servers();
  map.place(replica(1, 1, {DeviceId(0), DeviceId(1)}));
  EXPECT_TRUE(map.look(Group{0}).laminar);
  EXPECT_TRUE(map.look(Group{0, 1}).laminar);
  EXPECT_TRUE(map.look(Group{0, 1, 2}).laminar);
  EXPECT_TRUE(map.look(Group{2, 3}).laminar);
  EXPECT_FALSE(map.look(Group{1, 2}).laminar);
  EXPECT_FALSE(map.look(Group{1, 2, 3}).laminar);
}

TEST(ReplicaMap, WhatServesDrainsOrIsPinnedIsNotEvictable) {
  ReplicaMap map = two_servers();
  map.place(replica(1, 1, {DeviceId(0)}));
  EXPECT_TRUE(map.look(Group{0}).cheapest);
  map.set_state(ReplicaId(1), ReplicaState::kDraining);
  EXPECT_FALSE(map.look(Group{0}).cheapest);
  map.set_state(ReplicaId(1), ReplicaState::kServing);
  EXPECT_FALSE(map.look(Group{0}).cheapest);
  PlacedReplica pinned = replica(2, 2, {DeviceId(1)});
  pinned.pinned = true;
  map.place(pinned);
  EXPECT_FALSE(map.look(Group{1}).cheapest);
}

TEST(ReplicaMap, ACopyIsIndependent) {
  ReplicaMap map = two_servers();
  map.place(replica(1, 1, {DeviceId(0)}));
  ReplicaMap copy = map;
  copy.remove(ReplicaId(1));
  copy.place(replica(9, 2, {DeviceId(0)}));
  EXPECT_TRUE(map.holds(Group{0}, ModelId(1)));
  EXPECT_FALSE(map.holds(Group{0}, ModelId(2)));
  EXPECT_TRUE(copy.holds(Group{0}, ModelId(2)));
}

}  // namespace
}  // namespace heddle::policy
