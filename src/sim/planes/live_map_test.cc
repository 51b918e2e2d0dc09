#include "sim/planes/live_map.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

constexpr std::int64_t kPage = 2 << 20;

/// Pages that so many tokens of one sequence need at least.
double kv_pages_of(const std::vector<policy::KvGroup>& groups, std::int64_t tokens) {
  return static_cast<double>(policy::kv_pages(groups, {&tokens, 1}));
}

// Blocks that fill a page, that are a part of one which does not divide it, and that are larger:
// long sequences need as many pages as their bytes say.
TEST(LiveMap, KvNeedsAsManyPagesAsInTheWorld) {
  constexpr std::int64_t kTokens = 100'000;
  for (const double bytes : {131072.0, 40960.0, 28672.0, 819200.0, 1000.0, 2'000'000.0}) {
    const std::vector<policy::KvGroup> groups = kv_groups(bytes, kPage);
    const double exact = bytes * kTokens / kPage;
    EXPECT_NEAR(kv_pages_of(groups, kTokens), exact, 0.01 * exact + 2) << bytes;
    EXPECT_LE(groups.size(), 5) << bytes;
  }
}

/// The manager's configuration of a world, looked at as it begins.
void look(const ClusterSpec& cluster,
          const std::vector<ModelSpec>& models,
          const LiveOptions& options,
          const std::function<void(const World&, const LiveMap&)>& check) {
  bool looked = false;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& /*actions*/) {
    if (notice.kind == NoticeKind::kStart) {
      check(world, LiveMap(world, options));
      looked = true;
    }
  });
  run_world(cluster, models, plane, {});
  EXPECT_TRUE(looked);
}

TEST(LiveMap, AModelOnOneGpuMayBeOnEach) {
  look(test_cluster(2, 2), test_models(1), {.stages = 1}, [](const auto& world, const auto& map) {
    const core::Configure& all = map.configuration();
    ASSERT_EQ(all.models.size(), 1);
    EXPECT_EQ(all.devices.size(), 4);
    EXPECT_EQ(all.models[0].on_kinds.size(), 1);
    for (const core::ManagerDevice& device : all.devices) {
      EXPECT_TRUE(all.models[0].on_kinds.contains(device.kind));
    }
    EXPECT_EQ(all.models[0].fetched.size(), 2);
    EXPECT_EQ(all.networks.at(HostId(1)), 10'000'000'000);
    for (const Gpu& gpu : world.gpus()) {
      EXPECT_EQ(map.gpu(map.device(gpu.id)), gpu.id);
      EXPECT_EQ(host_of(map.device(gpu.id)), map.host(gpu.host));
    }
    const policy::Footprint& footprint = map.footprint(LiveMap::managed(ModelId(0)));
    EXPECT_EQ(footprint.image_pages,
              world.weight_pages(ModelId(0)) + world.overhead_pages(ModelId(0)));
  });
}

// Of five GPUs a model that is sharded over two has two blocks, and a shard of it each its part.
TEST(LiveMap, AShardedModelHasBlocks) {
  std::vector<ModelSpec> models = test_models(2);
  models[1].tp = 2;
  look(test_cluster(1, 5), models, {}, [](const auto& world, const auto& map) {
    const core::Configure& all = map.configuration();
    ASSERT_EQ(all.models.size(), 3);
    const core::ManagerModel& first = all.models[1];
    const core::ManagerModel& second = all.models[2];
    EXPECT_EQ(first.groups.size(), 2);
    EXPECT_EQ(second.part_of, first.id);
    EXPECT_EQ(first.footprints.size(), 2);
    for (const auto& [leader, others] : first.groups) {
      ASSERT_EQ(others.size(), 1);
      EXPECT_TRUE(second.footprints.contains(others[0].device));
      EXPECT_EQ(map.block(second.id, others[0].device),
                (std::vector<DeviceId>{leader, others[0].device}));
    }
    EXPECT_EQ(first.image_bytes,
              static_cast<std::uint64_t>(world.model(ModelId(1)).weight_bytes() / 2));
    EXPECT_EQ(map.parts_of(ModelId(1)), (std::vector<ModelId>{first.id, second.id}));
  });
}

// With three hosts a model may start in two stages, and in three.
TEST(LiveMap, AModelMayStartInStages) {
  look(test_cluster(3, 1), test_models(1), {}, [](const auto& /*world*/, const auto& map) {
    const core::Configure& all = map.configuration();
    ASSERT_EQ(all.models.size(), 1 + 2 + 3);
    EXPECT_EQ(all.models[1].cut_of, all.models[0].id);
    EXPECT_EQ(all.models[1].stages, (std::vector<ModelId>{all.models[2].id}));
    EXPECT_EQ(all.models[5].part_of, all.models[3].id);
    EXPECT_TRUE(map.part(all.models[5].id).stage);
    EXPECT_EQ(map.part(all.models[5].id).at, 2);
  });
}

// Where no server has GPUs enough, nobody offers the model.
TEST(LiveMap, AModelThatNoServerHasGpusForIsNotThere) {
  std::vector<ModelSpec> models = test_models(1);
  models[0].tp = 4;
  look(test_cluster(3, 2), models, {}, [](const auto& /*world*/, const auto& map) {
    EXPECT_TRUE(map.configuration().models.empty());
  });
}

}  // namespace
}  // namespace heddle::sim
