#include "sim/planes/support.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

TEST(Flags, UnknownOnesAndBadNumbersAreNamed) {
  Flags good({{"a", "2.5"}});
  EXPECT_EQ(good.number("a", 1), 2.5);
  EXPECT_EQ(good.number("b", 7), 7);
  EXPECT_EQ(good.problem(), "");
  Flags unknown({{"c", "1"}});
  unknown.number("a", 1);
  EXPECT_EQ(unknown.problem(), "there is no flag \"c\"; there are: a");
  Flags bad({{"a", "much"}});
  bad.number("a", 1);
  EXPECT_NE(bad.problem(), "");
}

TEST(LoadMeter, IntegratesRequestsInTheSystem) {
  LoadMeter meter(2);
  const auto at = [](std::int64_t seconds) { return Instant(std::chrono::seconds(seconds)); };
  meter.arrived(at(1), ModelId(1));
  meter.arrived(at(2), ModelId(1));
  meter.left(at(4), ModelId(1));
  EXPECT_EQ(meter.load(ModelId(1)), 1);
  EXPECT_DOUBLE_EQ(meter.integral(at(5), ModelId(1)), (1 + 2 * 2 + 1) * 1e9);
  EXPECT_EQ(meter.load(ModelId(0)), 0);
}

TEST(PlaceByMemory, FillsTheEmptiestGpuAndLeavesOutWhatFitsNowhere) {
  std::vector<std::vector<GpuId>> placed;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      placed = place_by_memory(world, std::vector<std::int64_t>(world.models().size(), 8000));
    } else if (notice.kind == NoticeKind::kArrival) {
      actions.reject(notice.request, Reason::kStatic);
    }
  });
  // 72 GB usable; a model takes 16 GB of weights, 1 of overhead and 16 of KV: two on each GPU.
  run_world(test_cluster(1, 2), test_models(5), plane, {row_at(0, 0, 1, 1)});
  ASSERT_EQ(placed.size(), 5U);
  EXPECT_EQ(placed[0], std::vector{GpuId(0)});
  EXPECT_EQ(placed[1], std::vector{GpuId(1)});
  EXPECT_EQ(placed[2], std::vector{GpuId(0)});
  EXPECT_EQ(placed[3], std::vector{GpuId(1)});
  EXPECT_TRUE(placed[4].empty());
}

TEST(RoomIndex, PutsServersWithMostRoomFirst) {
  RoomIndex index;
  std::vector<HostId> before;
  std::vector<HostId> after;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      for (const Host& host : world.hosts()) {
        index.update(world, host.id);
      }
      before = index.most(world, ModelId(0), 9);
      actions.start(whole(world, ModelId(0), {world.host(HostId(0)).gpus[0]}), Reason::kStatic);
      index.update(world, HostId(0));
      after = index.most(world, ModelId(0), 2);
    } else if (notice.kind == NoticeKind::kArrival) {
      actions.reject(notice.request, Reason::kStatic);
    }
  });
  run_world(test_cluster(3, 1), test_models(1), plane, {row_at(0, 0, 1, 1)});
  EXPECT_EQ(before, (std::vector{HostId(0), HostId(1), HostId(2)}));
  EXPECT_EQ(after, (std::vector{HostId(1), HostId(2)}));
}

// Two servers with GPUs too small for the model, and one that holds it and has less room.
TEST(RoomIndex, ListsOnlyServersThatCouldHoldTheModel) {
  ClusterSpec cluster = test_cluster(2, 4);
  cluster.hosts[0].gpu.memory = cluster.hosts[1].gpu.memory = 16'000'000'000;
  cluster.hosts.push_back(test_cluster(1, 1).hosts[0]);
  std::vector<HostId> found;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      RoomIndex index;
      for (const Host& host : world.hosts()) {
        index.update(world, host.id);
      }
      found = index.most(world, ModelId(0), 2);
    } else if (notice.kind == NoticeKind::kArrival) {
      actions.reject(notice.request, Reason::kStatic);
    }
  });
  run_world(cluster, test_models(1), plane, {row_at(0, 0, 1, 1)});
  EXPECT_EQ(found, std::vector{HostId(2)});
}

}  // namespace
}  // namespace heddle::sim
