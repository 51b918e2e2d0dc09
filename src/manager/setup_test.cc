#include "manager/setup.h"

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

constexpr Duration kClockOffset = std::chrono::hours(5);

constexpr std::uint64_t kPage = std::uint64_t{64} << 10U;

config::Config two_devices() {
  config::Config config;
  config.host.memory = 10 * kPage + 1;
  config.devices = {{.name = "cpu0", .cores = {0}, .memory = 4 * kPage, .page = kPage},
                    {.name = "cpu1",
                     .cores = {1},
                     .memory = 6 * kPage - 1,
                     .page = kPage,
                     .load_bandwidth = 1000,
                     .copy = true}};
  config.limits.queue = 9;
  return config;
}

ConfiguredModel opened(std::uint64_t id) {
  ConfiguredModel model{.config = {.id = "m" + std::to_string(id)}, .id = ModelId(id)};
  model.host = agent::HostModel{.id = model.id, .image_bytes = 5};
  model.host->spec.max_position = 1000;
  return model;
}

TEST(Setup, CountsMemoryInWholePages) {
  const Result<agent::AgentSetup> setup = agent_setup(two_devices(), 64);
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->host_pages, 10);
  ASSERT_EQ(setup->devices.size(), 2U);
  EXPECT_EQ(setup->devices[0].pages, 4);
  EXPECT_EQ(setup->devices[1].pages, 5);
  EXPECT_EQ(setup->devices[1].id, DeviceId(1));
  EXPECT_TRUE(setup->devices[1].copy);
  EXPECT_EQ(setup->devices[1].step.max_batch_tokens, 64);
}

TEST(Setup, AHostIsToldWhichDevicesAreGpusAndWhatItMayRun) {
  config::Config config = two_devices();
  config.devices[1].kind = config::DeviceKind::kCuda;
  config.devices[1].gpu = 6;
  const Result<host::HostSetup> setup = host_setup(config, 64);
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->gpus, (std::map<DeviceId, int>{{DeviceId(1), 6}}));
  EXPECT_EQ(setup->agent.devices.size(), 2U);
  EXPECT_EQ(setup->engines.page_bytes, kPage);

  std::vector<ConfiguredModel> models = {opened(1), {.config = {.id = "lost"}, .id = ModelId(2)}};
  models[0].shards = {{.id = ModelId(9)}};
  models.push_back({.config = {.id = "engine"}, .id = ModelId(3)});
  models[2].config.engine = config::EngineConfig{.device = "cpu0"};
  const host::HostModels hosted = host_models(config, models);
  ASSERT_EQ(hosted.own.size(), 2U);
  EXPECT_EQ(hosted.own[1].id, ModelId(9));
  ASSERT_EQ(hosted.configured.size(), 1U);
  EXPECT_EQ(hosted.engines.engines[0].model, ModelId(3));

  const auto served = served_models(models);
  EXPECT_EQ(served.at(ModelId(1)).image_bytes, 5U);
  EXPECT_TRUE(served.at(ModelId(2)).failure.has_value());
  EXPECT_FALSE(served.at(ModelId(3)).failure.has_value());
  EXPECT_FALSE(served.contains(ModelId(9))) << "nobody asks for a shard";
}

TEST(Setup, AStaticDeviceHasAPartForEachModelOfOurs) {
  config::Config config = two_devices();
  config.models = {{.id = "a"}, {.id = "b"}, {.id = "c"}};
  config.models[2].engine = config::EngineConfig{};
  EXPECT_EQ(agent_setup(config, 64)->devices[0].fixed_parts, 0);
  EXPECT_EQ(agent_setup(config, 64)->devices[0].queue, policy::QueueRule::kMooreHodgson);
  config.planner = {.queue = config::QueueOrder::kArrival, .kv = config::KvSharing::kStatic};
  EXPECT_EQ(agent_setup(config, 64)->devices[1].fixed_parts, 2);
  EXPECT_EQ(agent_setup(config, 64)->devices[1].queue, policy::QueueRule::kArrival);
}

TEST(Setup, TheShardsOfAModelGoToTheDevicesOfABlock) {
  config::Config config = two_devices();
  config.devices = {config.devices[0], config.devices[0], config.devices[0]};
  ConfiguredModel sharded = opened(1);
  sharded.shards = {{.id = ModelId(9), .name = "m1[1]", .image_bytes = 4}};
  const core::Configure configure = core_setup(config, {sharded}, kClockOffset);
  ASSERT_EQ(configure.models.size(), 2U);
  const core::ManagerModel& shard = configure.models[0];
  const core::ManagerModel& first = configure.models[1];
  EXPECT_EQ(first.id, ModelId(1));
  EXPECT_EQ(first.footprints.size(), 1U);
  EXPECT_TRUE(first.footprints.contains(DeviceId(0)));
  EXPECT_EQ(first.groups.at(DeviceId(0)),
            (std::vector<core::ShardPlace>{{.model = ModelId(9), .device = DeviceId(1)}}));
  EXPECT_EQ(shard.part_of, ModelId(1));
  EXPECT_EQ(shard.name, "m1[1]");
  EXPECT_TRUE(shard.footprints.contains(DeviceId(1)));
}

TEST(Setup, NamesWhatCannotBe) {
  config::Config mixed = two_devices();
  mixed.devices[1].page = 2 * kPage;
  EXPECT_EQ(agent_setup(mixed, 64).error().code, Code::kInvalidArgument);
  config::Config small = two_devices();
  small.devices[1].memory = kPage - 1;
  EXPECT_EQ(agent_setup(small, 64).error().message,
            "device cpu1 has 65535 bytes of memory, less than one page of 65536");
  config::Config hostless = two_devices();
  hostless.host.memory = 0;
  EXPECT_EQ(agent_setup(hostless, 64).error().message,
            "host has 0 bytes of memory for images, less than one page of 65536");
}

TEST(Setup, GivesTheCoreTheModelsThatCanBeOpened) {
  std::vector<ConfiguredModel> models = {opened(1), opened(2), opened(3)};
  models[1].host = Error{Code::kNotFound, "gone"};
  models[2].config.context = 300;
  models[2].config.pin = true;
  models[2].config.slo = {.ttft = std::chrono::seconds(2)};
  const core::Configure configure = core_setup(two_devices(), models, kClockOffset);
  EXPECT_EQ(configure.options.queue_per_model, 9U);
  EXPECT_TRUE(configure.options.planner.prewarm);
  EXPECT_EQ(configure.options.planner.calendar.windows_per_day, 288);
  EXPECT_EQ(configure.options.planner.calendar.offset, kClockOffset);
  EXPECT_EQ(configure.devices[1].pages, 5);
  ASSERT_EQ(configure.models.size(), 2U);
  EXPECT_EQ(configure.models[0].context, 1000);
  EXPECT_EQ(configure.models[1].id, ModelId(3));
  EXPECT_EQ(configure.models[1].context, 300);
  EXPECT_TRUE(configure.models[1].pin);
  EXPECT_EQ(configure.models[0].slo, policy::WantedObjectives{});
  EXPECT_EQ(configure.models[1].slo, policy::WantedObjectives{.ttft = std::chrono::seconds(2)});
  EXPECT_EQ(configure.models[1].footprints.size(), 2U);
}

TEST(Setup, AModelRunsOnTheDevicesThatItNames) {
  std::vector<ConfiguredModel> models = {opened(1)};
  config::Config config = two_devices();
  models[0].config.devices = {config.devices[1].name};
  const core::Configure configure = core_setup(config, models, kClockOffset);
  ASSERT_EQ(configure.models.size(), 1U);
  ASSERT_EQ(configure.models[0].footprints.size(), 1U);
  EXPECT_EQ(configure.models[0].footprints.begin()->first, DeviceId(1));
}

TEST(Setup, AReloadCannotChangeWhatMemoryThereIs) {
  const config::Config before = two_devices();
  config::Config models = before;
  models.models.push_back({.id = "new"});
  EXPECT_TRUE(check_reload(before, models));
  config::Config devices = before;
  devices.devices[0].cores = {0, 1};
  EXPECT_EQ(check_reload(before, devices).error().code, Code::kFailedPrecondition);
  config::Config planner = before;
  planner.planner.queue = config::QueueOrder::kArrival;
  EXPECT_EQ(check_reload(before, planner).error().code, Code::kFailedPrecondition);
  config::Config host = before;
  host.host.memory += kPage;
  EXPECT_EQ(check_reload(before, host).error().code, Code::kFailedPrecondition);
}

TEST(Setup, EnginesShareTheDevicesAndTheSizeOfPages) {
  config::Config config = two_devices();
  config.devices.push_back({.name = "gpu0",
                            .kind = config::DeviceKind::kExternal,
                            .memory = 100 * kPage + 1,
                            .page = 2U << 20U});
  config.host.snapshots = 7 * kPage;
  std::vector<ConfiguredModel> models = {opened(1), {}, {}};
  for (const std::size_t at : {std::size_t{1}, std::size_t{2}}) {
    models[at].id = ModelId(at + 1);
    models[at].config.id = at == 1 ? "all" : "some";
    models[at].config.engine = config::EngineConfig{
        .device = at == 1 ? "gpu0" : "cpu0",
        .memory = at == 1 ? 100 * kPage + 1 : 2 * kPage + 1,
        .suspend = {at == 1 ? spec::SuspendLevel::kCheckpoint : spec::SuspendLevel::kSleep,
                    spec::SuspendLevel::kStop}};
  }
  models[1].config.displaces = {"some"};

  const core::Configure manager = core_setup(config, models, kClockOffset);
  ASSERT_EQ(manager.devices.size(), 3U);
  EXPECT_EQ(manager.devices[2].pages, 100);
  EXPECT_EQ(manager.devices[2].page_bytes, kPage);
  EXPECT_EQ(manager.models[0].footprints.size(), 2U);  // Not on a device of engines.
  EXPECT_EQ(manager.models[1].footprints.at(DeviceId(2)).image_pages, 100);
  EXPECT_TRUE(manager.models[1].external->drain);
  EXPECT_EQ(manager.models[1].displaces, std::vector{ModelId(3)});
  EXPECT_EQ(manager.models[2].footprints.at(DeviceId(0)).image_pages, 3);
  EXPECT_FALSE(manager.models[2].external->drain);  // Sleeping loses what it answers.

  const core::ConfigureEngines engines = engines_setup(config, models);
  ASSERT_EQ(engines.devices.size(), 1U);
  EXPECT_EQ(engines.devices[0].id, DeviceId(2));
  EXPECT_EQ(engines.devices[0].pages, 100);
  EXPECT_EQ(engines.host_pages, 7);
  ASSERT_EQ(engines.engines.size(), 2U);
  EXPECT_EQ(engines.engines[0].pages, 100);
  EXPECT_EQ(engines.engines[1].levels.front(), spec::SuspendLevel::kSleep);
  EXPECT_EQ(agent_setup(config, 64)->devices.size(), 2U);
}

}  // namespace
}  // namespace heddle::manager
