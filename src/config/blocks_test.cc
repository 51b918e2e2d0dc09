#include "config/blocks.h"

#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using Blocks = std::vector<std::vector<std::size_t>>;

Config with_devices(const std::vector<std::uint64_t>& memories) {
  Config config;
  for (const std::uint64_t memory : memories) {
    config.devices.push_back({.name = "d", .memory = memory});
  }
  return config;
}

TEST(DeviceBlocks, AreAlignedInTheOrderOfTheDevices) {
  const Config config = with_devices({8, 8, 8, 8, 8});
  EXPECT_EQ(device_blocks(config, 2), (Blocks{{0, 1}, {2, 3}}));
  EXPECT_EQ(device_blocks(config, 4), (Blocks{{0, 1, 2, 3}}));
  EXPECT_EQ(device_blocks(config, 8), Blocks{});
}

TEST(DeviceBlocks, AreOfDevicesThatAreAlike) {
  EXPECT_EQ(device_blocks(with_devices({8, 4, 8, 8}), 2), (Blocks{{2, 3}}));
  EXPECT_EQ(device_blocks(with_devices({4, 8, 8, 4}), 2), Blocks{});
}

TEST(DeviceBlocks, DoNotCountDevicesThatRunNoModels) {
  Config config = with_devices({8, 8, 8});
  config.devices[1].kind = DeviceKind::kExternal;
  EXPECT_EQ(device_blocks(config, 2), (Blocks{{0, 2}}));
}

TEST(DeviceBlocks, AModelWithoutAnyIsAProblem) {
  Config config = with_devices({8, 4});
  config.models = {{.id = "small"}, {.id = "large", .tensor_parallel = 2}};
  const std::vector<std::string> problems = block_problems(config);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("models.large.tensor_parallel: 2 devices"), std::string::npos);
}

TEST(DeviceBlocks, AModelNamesDevicesThatThereAre) {
  Config config = with_devices({8, 4});
  config.devices[0].name = "left";
  config.devices[1].name = "right";
  config.models = {{.id = "bound", .devices = {"right"}}};
  EXPECT_TRUE(block_problems(config).empty());
  config.models[0].devices.emplace_back("middle");
  ASSERT_EQ(block_problems(config).size(), 1U);
  EXPECT_EQ(block_problems(config)[0],
            "models.bound.devices: there is no \"middle\" that runs models; "
            "there are: left, right");
  config.models = {{.id = "sharded", .devices = {"left"}, .tensor_parallel = 2}};
  config.devices[1].memory = config.devices[0].memory;
  ASSERT_EQ(block_problems(config).size(), 1U);
  EXPECT_NE(block_problems(config)[0].find("any block of 2"), std::string::npos);
}

TEST(DeviceBlocks, AnEngineThatIsNotOursCannotBeCut) {
  Config config = with_devices({8, 8});
  config.models = {{.id = "other", .tensor_parallel = 2, .engine = EngineConfig{}}};
  ASSERT_EQ(block_problems(config).size(), 1U);
}

TEST(DeviceBlocks, InAClusterStagesNeedNoBlockOfOneHost) {
  Config config = with_devices({8});
  config.cluster = ClusterConfig{};
  config.models = {{.id = "deep", .pipeline_parallel = 2}};
  EXPECT_TRUE(block_problems(config).empty());
  config.models[0] = {.id = "wide", .tensor_parallel = 2};
  EXPECT_EQ(block_problems(config).size(), 1U) << "ranks that sum together are on one host";
  EXPECT_TRUE(block_problems(config, true).empty()) << "hosts have devices of their own";
}

TEST(DeviceBlocks, StagesNeedABlockToo) {
  Config config;
  config.devices = {{.name = "left", .kind = DeviceKind::kCpu, .memory = 1U << 20U}};
  config.models = {{.id = "deep", .pipeline_parallel = 2}};
  const std::vector<std::string> problems = block_problems(config);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("models.deep.pipeline_parallel: 2 devices"), std::string::npos);
  config.devices.push_back(config.devices[0]);
  config.devices[1].name = "right";
  EXPECT_TRUE(block_problems(config).empty());
  config.models[0].devices = {"left"};
  ASSERT_EQ(block_problems(config).size(), 1U);
  EXPECT_NE(block_problems(config)[0].find("for a model in stages"), std::string::npos);
}

}  // namespace
}  // namespace heddle::config
