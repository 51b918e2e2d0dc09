#include "host/setup.h"

#include <gtest/gtest.h>

namespace heddle::host {
namespace {

constexpr std::uint64_t kSmallPage = std::uint64_t{64} << 10U;

config::Config two_devices() {
  config::Config config;
  config.host.memory = 10 * kSmallPage + 1;
  config.host.kv = 0;
  config.devices = {{.name = "cpu0", .cores = {0}, .memory = 4 * kSmallPage, .page = kSmallPage},
                    {.name = "cpu1",
                     .cores = {1},
                     .memory = 6 * kSmallPage - 1,
                     .page = kSmallPage,
                     .load_bandwidth = 1000,
                     .copy = true}};
  config.limits.queue = 9;
  return config;
}

/// A model of `ranks` shards, as it would have been opened.
OpenedModel opened(const std::string& name, std::size_t ranks = 1) {
  OpenedModel model{.config = {.id = name}, .digest = "d-" + name};
  model.ranks = std::vector<agent::HostModel>(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    (*model.ranks)[i].image_bytes = 5 - i;
    (*model.ranks)[i].footprint.image_pages = 1;
    (*model.ranks)[i].spec.max_position = 1000;
  }
  return model;
}

OpenedModel engine(const std::string& name, config::EngineConfig config) {
  OpenedModel model{.config = {.id = name}};
  model.config.engine = std::move(config);
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

TEST(Setup, DevicesOfCpusThatCachePrefixesShareWhatKeepsKv) {
  config::Config config = two_devices();
  config.host.kv = 9 * kSmallPage;
  const auto kept = [&config] {
    const agent::AgentSetup setup = agent_setup(config, 64).value();
    std::vector<std::int64_t> pages;
    for (const agent::DeviceSetup& device : setup.devices) {
      pages.push_back(device.kv_pages);
    }
    return pages;
  };
  EXPECT_EQ(kept(), (std::vector<std::int64_t>{3, 5})) << "4 parts and 6, less a byte, of 10";
  config.devices[0].prefix_cache = 0;
  EXPECT_EQ(kept(), (std::vector<std::int64_t>{0, 9}));
  config.devices[1].kind = config::DeviceKind::kCuda;
  config.devices[1].gpu = 0;
  EXPECT_EQ(kept(), (std::vector<std::int64_t>{0, 0})) << "a GPU keeps none";
}

TEST(Setup, DevicesOfAHostAmongOthersHaveNumbersOfItsOwn) {
  config::Config config = two_devices();
  config.devices[1].kind = config::DeviceKind::kCuda;
  config.devices[1].gpu = 6;
  const HostId host(3);
  const Result<HostSetup> setup = host_setup(config, 64, host);
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->agent.devices[0].id, device_id(host, 0));
  EXPECT_EQ(setup->gpus, (std::map<DeviceId, int>{{device_id(host, 1), 6}}));
  const HostFacts facts = host_facts(config, host);
  ASSERT_EQ(facts.devices.size(), 2U);
  EXPECT_EQ(facts.devices[1].id, device_id(host, 1));
  EXPECT_EQ(facts.devices[1].pages, 5);
  EXPECT_EQ(facts.devices[1].page_bytes, kSmallPage);
  EXPECT_TRUE(facts.devices[0].in_host_memory);
  EXPECT_FALSE(facts.devices[1].in_host_memory);
}

TEST(Setup, AHostRunsWhatWasTakenUpOfItsOffers) {
  const config::Config config = two_devices();
  std::vector<OpenedModel> models = {opened("one", 2), opened("other"), opened("lost")};
  models[2].ranks = Error{Code::kNotFound, "gone"};
  models.push_back(engine("engine", {.device = "cpu0"}));
  const HostModels hosted =
      host_models(config,
                  HostId(0),
                  models,
                  {{.name = "one", .digest = "d-one", .ids = {ModelId(1), ModelId(9)}},
                   {.name = "other", .digest = "of other files", .ids = {ModelId(2)}},
                   {.name = "engine", .ids = {ModelId(3)}}});
  ASSERT_EQ(hosted.own.size(), 2U) << "and not what has other files by now";
  EXPECT_EQ(hosted.own[0].id, ModelId(1));
  EXPECT_EQ(hosted.own[1].id, ModelId(9));
  ASSERT_EQ(hosted.configured.size(), 1U);
  EXPECT_EQ(hosted.engines.engines[0].model, ModelId(3));
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

/// GPUs of a machine, each of which reaches the one before and the one behind.
config::Config gpus(int count) {
  config::Config config;
  for (int i = 0; i < count; ++i) {
    config.devices.push_back({.name = "gpu" + std::to_string(i),
                              .kind = config::DeviceKind::kCuda,
                              .gpu = i,
                              .peers = {i - 1, i + 1},
                              .memory = 4 * kSmallPage,
                              .page = kSmallPage});
  }
  return config;
}

TEST(Setup, GpusThatReachEachOtherCanHaveGuests) {
  config::Config config = gpus(3);
  config.devices.insert(config.devices.begin(), two_devices().devices[0]);
  const GuestPairs pairs = guest_pairs(config);
  EXPECT_EQ(pairs.peers.pairs,
            (std::vector<std::pair<DeviceId, DeviceId>>{{DeviceId(1), DeviceId(2)},
                                                        {DeviceId(2), DeviceId(3)}}))
      << "and none of them with the CPUs";
  ASSERT_EQ(pairs.refusals.size(), 1U);
  EXPECT_EQ(pairs.refusals[0],
            "gpu0 and gpu2: they have no access to each other's memory (nvidia-smi topo -p2p r)");
}

TEST(Setup, GpusThatLackWhatGuestsNeedAreNamedWithIt) {
  config::Config config = gpus(2);
  config.devices[1].no_guests = "has no stream memory operations";
  EXPECT_TRUE(guest_pairs(config).peers.pairs.empty());
  EXPECT_EQ(guest_pairs(config).refusals,
            std::vector<std::string>{"gpu0 and gpu1: gpu1 has no stream memory operations"});
  config = gpus(2);
  config.devices[1].page = 2 * kSmallPage;
  EXPECT_EQ(guest_pairs(config).refusals,
            std::vector<std::string>{"gpu0 and gpu1: their pages differ in size"});
  config = gpus(2);
  config.devices[1].peers = {};
  EXPECT_TRUE(guest_pairs(config).peers.pairs.empty()) << "one way is not enough";
}

TEST(Setup, NamesWhatCannotBe) {
  config::Config mixed = two_devices();
  mixed.devices[1].page = 2 * kSmallPage;
  EXPECT_EQ(agent_setup(mixed, 64).error().code, Code::kInvalidArgument);
  config::Config small = two_devices();
  small.devices[1].memory = kSmallPage - 1;
  EXPECT_EQ(agent_setup(small, 64).error().message,
            "device cpu1 has 65535 bytes of memory, less than one page of 65536");
  config::Config hostless = two_devices();
  hostless.host.memory = 0;
  EXPECT_EQ(agent_setup(hostless, 64).error().message,
            "host has 0 bytes of memory for images, less than one page of 65536");
}

TEST(Setup, EnginesShareTheDevicesAndTheSizeOfPages) {
  config::Config config = two_devices();
  config.devices.push_back({.name = "gpu0",
                            .kind = config::DeviceKind::kExternal,
                            .memory = 100 * kSmallPage + 1,
                            .page = 2U << 20U});
  config.host.snapshots = 7 * kSmallPage;
  const std::vector<OpenedModel> models = {
      engine("all", {.device = "gpu0", .memory = 100 * kSmallPage + 1}),
      engine("some",
             {.device = "cpu0",
              .memory = 2 * kSmallPage + 1,
              .suspend = {spec::SuspendLevel::kSleep, spec::SuspendLevel::kStop}}),
      engine("nowhere", {.device = "gpu9"}),
      engine(
          "frozen",
          {.device = "cpu0", .suspend = {spec::SuspendLevel::kFreeze, spec::SuspendLevel::kStop}}),
      engine("misfit", {.device = "cpu0", .misfit = "memory: it can never fit"})};
  const std::vector<Offer> offered = offers(config, HostId(0), models);
  EXPECT_EQ(offered[0].ranks[0].footprints.at(DeviceId(2)).image_pages, 100);
  EXPECT_EQ(offered[1].ranks[0].footprints.at(DeviceId(0)).image_pages, 3);
  ASSERT_TRUE(offered[2].failure.has_value());
  EXPECT_EQ(offered[2].failure->message, "the host has no device gpu9");
  EXPECT_FALSE(offered[1].keeps_requests) << "asleep, it answers nobody";
  EXPECT_TRUE(offered[3].keeps_requests);
  EXPECT_EQ(offered[4].failure->message, "memory: it can never fit");
  EXPECT_NE(engine_host_setup(config, HostId(1)).record_directory,
            engine_host_setup(config, HostId(2)).record_directory)
      << "hosts on one machine";

  const HostModels hosted =
      host_models(config,
                  HostId(0),
                  models,
                  {{.name = "all", .ids = {ModelId(2)}}, {.name = "some", .ids = {ModelId(3)}}});
  ASSERT_EQ(hosted.engines.devices.size(), 1U);
  EXPECT_EQ(hosted.engines.devices[0].id, DeviceId(2));
  EXPECT_EQ(hosted.engines.devices[0].pages, 100);
  EXPECT_EQ(hosted.engines.host_pages, 7);
  ASSERT_EQ(hosted.engines.engines.size(), 2U);
  EXPECT_EQ(hosted.engines.engines[0].pages, 100);
  EXPECT_EQ(hosted.engines.engines[1].levels.front(), spec::SuspendLevel::kSleep);
  EXPECT_EQ(agent_setup(config, 64)->devices.size(), 2U);
  EXPECT_EQ(host_facts(config, HostId(0)).devices[2].pages, 100);
  EXPECT_EQ(host_facts(config, HostId(0)).devices[2].page_bytes, kSmallPage);
}

TEST(Setup, AnEngineOnSeveralDevicesNeedsAsMuchOfEach) {
  config::Config config = two_devices();
  for (const std::string name : {"gpu0", "gpu1"}) {
    config.devices.push_back({.name = name,
                              .kind = config::DeviceKind::kExternal,
                              .memory = (name == "gpu0" ? 100 : 60) * kSmallPage,
                              .page = kSmallPage});
  }
  const std::vector<OpenedModel> models = {engine(
      "both", {.device = "gpu0", .further_devices = {"gpu1"}, .memory = 59 * kSmallPage + 1})};
  const HostId host(2);
  const Offer offered = offers(config, host, models).front();
  EXPECT_TRUE(offered.together);
  EXPECT_EQ(offered.ranks[0].footprints.at(device_id(host, 2)).image_pages, 60);
  EXPECT_EQ(offered.ranks[0].footprints.at(device_id(host, 3)).image_pages, 60);
  const HostModels hosted =
      host_models(config, host, models, {{.name = "both", .ids = {ModelId(2)}}});
  ASSERT_EQ(hosted.engines.engines.size(), 1U);
  EXPECT_EQ(hosted.engines.engines[0].device, device_id(host, 2));
  EXPECT_EQ(hosted.engines.engines[0].further, std::vector{device_id(host, 3)});
}

TEST(Setup, TheShardsOfAModelGoToTheDevicesOfABlock) {
  config::Config config = two_devices();
  config.devices = {config.devices[0], config.devices[0], config.devices[0]};
  const Offer offer = offers(config, HostId(2), {opened("big", 2)}).front();
  const DeviceId first = device_id(HostId(2), 0);
  const DeviceId second = device_id(HostId(2), 1);
  EXPECT_EQ(offer.blocks, (std::vector<Block>{{.devices = {first, second}}}));
  ASSERT_EQ(offer.ranks.size(), 2U);
  EXPECT_TRUE(offer.ranks[0].footprints.contains(first));
  EXPECT_TRUE(offer.ranks[1].footprints.contains(second));
  EXPECT_EQ(offer.ranks[1].image_bytes, 4U);
}

TEST(Setup, InAClusterAHostOffersItsDevicesForStagesThatItCannotHaveAlone) {
  config::Config config = two_devices();
  OpenedModel model = opened("deep", 4);
  model.config.pipeline_parallel = 4;
  EXPECT_TRUE(offers(config, HostId(2), {model}).front().ranks[3].footprints.empty());
  config.cluster = config::ClusterConfig{};
  const Offer offer = offers(config, HostId(2), {model}).front();
  EXPECT_TRUE(offer.blocks.empty());
  ASSERT_EQ(offer.ranks.size(), 4U);
  for (const OfferedRank& rank : offer.ranks) {
    EXPECT_EQ(rank.footprints.size(), 2U) << "each stage on each device";
  }
}

TEST(Setup, AModelRunsOnTheDevicesThatItNames) {
  const config::Config config = two_devices();
  OpenedModel model = opened("m");
  EXPECT_EQ(offers(config, HostId(0), {model}).front().ranks[0].footprints.size(), 2U);
  model.config.devices = {config.devices[1].name};
  model.config.context = 300;
  const Offer offer = offers(config, HostId(0), {model}).front();
  ASSERT_EQ(offer.ranks[0].footprints.size(), 1U);
  EXPECT_EQ(offer.ranks[0].footprints.begin()->first, DeviceId(1));
  EXPECT_EQ(offer.context, 300);
}

}  // namespace
}  // namespace heddle::host
