#include "manager/setup.h"

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

constexpr Duration kClockOffset = std::chrono::hours(5);
constexpr std::uint64_t kPage = std::uint64_t{64} << 10U;
constexpr HostId kFirst{1};
constexpr HostId kSecond{2};

/// What a host with two devices offers of a model, on `devices` of them.
host::Offer offer(HostId host, std::size_t ranks = 1) {
  host::Offer made{.name = "m", .digest = "d", .context = 1000};
  for (std::size_t i = 0; i < ranks; ++i) {
    made.ranks.push_back({.image_bytes = 5 - i, .footprints = {{device_id(host, i), {}}}});
  }
  return made;
}

ConfiguredModel model(std::uint64_t id) {
  return {.config = {.id = "m" + std::to_string(id)},
          .offers = {{kFirst, offer(kFirst)}},
          .digest = "d",
          .id = ModelId(id)};
}

TEST(Setup, GivesTheCoreTheModelsThatSomeHostCanServe) {
  std::vector<ConfiguredModel> models = {model(1), model(2), model(3)};
  models[1].offers[kFirst].failure = Error{Code::kNotFound, "gone"};
  models[2].config.pin = true;
  models[2].config.slo = {.ttft = std::chrono::seconds(2)};
  models[2].offers[kSecond] = offer(kSecond);
  models[2].offers[kSecond].fetched = true;
  config::Config config;
  config.limits.queue = 9;
  const std::vector<core::ManagerDevice> devices = {{.id = device_id(kFirst, 0), .pages = 4}};
  const core::Configure configure = core_setup(config, models, devices, kClockOffset);
  EXPECT_EQ(configure.options.queue_per_model, 9U);
  EXPECT_TRUE(configure.options.planner.prewarm);
  EXPECT_EQ(configure.options.planner.calendar.windows_per_day, 288);
  EXPECT_EQ(configure.options.planner.calendar.offset, kClockOffset);
  ASSERT_EQ(configure.devices.size(), 1U);
  EXPECT_EQ(configure.devices[0].pages, 4);
  ASSERT_EQ(configure.models.size(), 2U);
  EXPECT_EQ(configure.models[0].context, 1000);
  EXPECT_EQ(configure.models[1].id, ModelId(3));
  EXPECT_TRUE(configure.models[1].pin);
  EXPECT_EQ(configure.models[0].slo, policy::WantedObjectives{});
  EXPECT_EQ(configure.models[1].slo, policy::WantedObjectives{.ttft = std::chrono::seconds(2)});
  EXPECT_EQ(configure.models[0].footprints.size(), 1U);
  EXPECT_EQ(configure.models[1].footprints.size(), 2U) << "on both hosts";
  EXPECT_TRUE(configure.models[0].fetched.empty());
  EXPECT_EQ(configure.models[1].fetched, (std::map<HostId, std::uint64_t>{{kSecond, 5}}));
  EXPECT_EQ(assignments(models, kSecond),
            (std::vector<host::Assignment>{{.name = "m3", .digest = "d", .ids = {ModelId(3)}}}));

  const auto served = served_models(models);
  EXPECT_EQ(served.at(ModelId(1)).image_bytes, 5U);
  EXPECT_EQ(served.at(ModelId(2)).failure->message, "gone");
}

TEST(Setup, AHostWithOtherFilesUnderTheNameTakesNoPart) {
  std::vector<ConfiguredModel> models = {model(1)};
  models[0].offers[kSecond] = offer(kSecond);
  models[0].offers[kSecond].digest = "other";
  const core::Configure configure = core_setup({}, models, {}, kClockOffset);
  EXPECT_EQ(configure.models[0].footprints.size(), 1U);
  EXPECT_TRUE(assignments(models, kSecond).empty());
}

TEST(Setup, TheShardsOfAModelGoToTheDevicesOfABlock) {
  ConfiguredModel sharded = model(1);
  sharded.shards = {ModelId(9)};
  sharded.config.tensor_parallel = 2;
  for (const HostId host : {kFirst, kSecond}) {
    sharded.offers[host] = offer(host, 2);
    sharded.blocks->push_back({.devices = {device_id(host, 0), device_id(host, 1)}});
  }
  const core::Configure configure = core_setup({}, {sharded}, {}, kClockOffset);
  ASSERT_EQ(configure.models.size(), 2U);
  const core::ManagerModel& shard = configure.models[0];
  const core::ManagerModel& first = configure.models[1];
  EXPECT_EQ(first.id, ModelId(1));
  EXPECT_EQ(first.footprints.size(), 2U);
  EXPECT_EQ(first.groups.at(device_id(kSecond, 0)),
            (std::vector<core::ShardPlace>{{.model = ModelId(9), .device = device_id(kSecond, 1)}}))
      << "a group is on one host";
  EXPECT_EQ(shard.part_of, ModelId(1));
  EXPECT_TRUE(first.shares && shard.shares) << "others may be beside it";
  config::Config apart;
  apart.planner.share_groups = false;
  const core::Configure alone = core_setup(apart, {sharded}, {}, kClockOffset);
  for (const core::ManagerModel& part : alone.models) {
    EXPECT_FALSE(part.shares) << part.name;
  }
  EXPECT_EQ(shard.name, "m1[1]");
  EXPECT_EQ(shard.image_bytes, 4U);
  EXPECT_TRUE(shard.footprints.contains(device_id(kFirst, 1)));
  EXPECT_EQ(served_models({sharded}).count(ModelId(9)), 0U) << "nobody asks for a shard";
}

TEST(Setup, AModelThatMayBeCutIsAModelMoreForEachCutAndStage) {
  ConfiguredModel whole = model(1);
  whole.config.pin = true;
  whole.cuts = {{ModelId(7), ModelId(8)}};
  whole.alike = {kFirst, kSecond};
  for (const HostId host : {kFirst, kSecond}) {
    whole.offers[host] = offer(host, 1);
    whole.offers[host].fetched = host == kSecond;
    whole.offers[host].cuts = {
        {.stages = {{.image_bytes = 3, .footprints = {{device_id(host, 0), {}}}},
                    {.image_bytes = 2, .footprints = {{device_id(host, 0), {}}}}}}};
  }
  const core::Configure configure = core_setup({}, {whole}, {}, kClockOffset);
  ASSERT_EQ(configure.models.size(), 3U);
  const core::ManagerModel& cut = configure.models[0];
  const core::ManagerModel& stage = configure.models[1];
  EXPECT_EQ(cut.cut_of, ModelId(1));
  EXPECT_EQ(cut.stages, std::vector{ModelId(8)});
  EXPECT_EQ(cut.name, "m1 (stage 1 of 2)");
  EXPECT_FALSE(cut.pin) << "it gives way to the whole";
  EXPECT_TRUE(cut.groups.empty());
  EXPECT_EQ(stage.part_of, ModelId(7));
  EXPECT_EQ(stage.image_bytes, 2U);
  EXPECT_EQ(stage.fetched, (std::map<HostId, std::uint64_t>{{kSecond, 2}}));
  EXPECT_EQ(stage.footprints.size(), 2U) << "any device may have it";
  EXPECT_EQ(configure.models[2].id, ModelId(1));
  EXPECT_EQ(assignments({whole}, kFirst)[0].ids, (std::vector{ModelId(1), ModelId(7), ModelId(8)}));
}

TEST(Setup, AnEngineMayBeOnAnyHostThatHasItAndMayDisplaceOthers) {
  std::vector<ConfiguredModel> models = {model(1), model(2), model(3)};
  models[0].offers = {{kFirst, offer(kFirst)}, {kSecond, offer(kSecond)}};
  models[0].offers[kSecond].keeps_requests = true;
  models[0].config.engine = config::EngineConfig{};
  models[0].config.displaces = {"m2"};
  models[1].config.engine = config::EngineConfig{};
  const core::Configure configure = core_setup({}, models, {}, kClockOffset);
  EXPECT_EQ(configure.models[0].footprints.size(), 2U);
  EXPECT_TRUE(configure.models[0].external->drain);
  EXPECT_EQ(configure.models[0].displaces, std::vector{ModelId(2)});
  EXPECT_FALSE(configure.models[1].external->drain) << "suspended, it loses what it answers";
}

TEST(Setup, TheFirstDeviceOfAnEngineOnSeveralStandsForAll) {
  std::vector<ConfiguredModel> models = {model(1)};
  models[0].config.engine = config::EngineConfig{};
  for (const HostId host : {kFirst, kSecond}) {
    host::Offer both = offer(host);
    both.ranks[0].footprints = {{device_id(host, 1), {.image_pages = 3}},
                                {device_id(host, 4), {.image_pages = 3}}};
    both.together = host == kSecond;
    models[0].offers[host] = both;
  }
  const core::Configure configure = core_setup({}, models, {}, kClockOffset);
  const core::ManagerModel& engine = configure.models[0];
  EXPECT_EQ(engine.external->further,
            (std::map<DeviceId, std::vector<DeviceId>>{
                {device_id(kSecond, 1), {device_id(kSecond, 4)}}}));
  EXPECT_EQ(engine.footprints.size(), 3U);
  EXPECT_FALSE(engine.footprints.contains(device_id(kSecond, 4)));
}

TEST(Setup, AReloadCannotChangeHowThePlannerDecides) {
  const config::Config before;
  config::Config models = before;
  models.models.push_back({.id = "new"});
  EXPECT_TRUE(check_reload(before, models));
  config::Config planner = before;
  planner.planner.queue = config::QueueOrder::kArrival;
  EXPECT_EQ(check_reload(before, planner).error().code, Code::kFailedPrecondition);
  config::Config patient = before;
  patient.planner.drain_after = std::chrono::seconds(7);
  EXPECT_TRUE(check_reload(before, patient)) << "this is read anew each time";
  EXPECT_EQ(core_setup(patient, {}, {}, kClockOffset).options.drain_after, std::chrono::seconds(7));
  config::Config folder = before;
  folder.data_dir = "/elsewhere";
  EXPECT_EQ(check_reload(before, folder).error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace heddle::manager
