#include "twin/twin.h"

#include <numeric>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPage = 65536;
constexpr std::int64_t kImagePages = 16;

/// One device at the end of a link on which an image takes a second; steps take 20 ms and 1 ms a
/// token.
TwinSetup setup_of(int models, std::int64_t device_pages) {
  TwinSetup setup;
  setup.hosts[0].agent.host_pages = 100;
  const core::AgentDevice device{.id = DeviceId(0), .pages = device_pages, .copy = true};
  setup.hosts[0].agent.devices = {device};
  setup.hosts[0].devices = {{.device = device,
                             .worker = {.device = DeviceId(0),
                                        .pages = device_pages,
                                        .step = {.budget = 150ms, .max_batch_tokens = 64}},
                             .pace_step = 20ms,
                             .pace_token = 1ms,
                             .link = static_cast<double>(kImagePages * kPage),
                             .step_overhead = {}}};
  setup.manager.devices = {
      {.id = DeviceId(0), .name = "a", .pages = device_pages, .page_bytes = kPage}};
  for (int i = 1; i <= models; ++i) {
    const ModelId id(static_cast<std::uint64_t>(i));
    const policy::Footprint footprint{.image_pages = kImagePages,
                                      .min_kv_pages = 1,
                                      .kv = {{.tokens_per_block = 16, .blocks_per_page = 4}}};
    setup.models.push_back(
        {.model = {.id = id, .image_bytes = kImagePages * kPage, .footprint = footprint},
         .layers = 4,
         .body_bytes = kImagePages * kPage,
         .step = {.fixed = 1e-3}});
    setup.manager.models.push_back({.id = id,
                                    .name = "m" + std::to_string(i),
                                    .image_bytes = kImagePages * kPage,
                                    .context = 1000,
                                    .footprints = {{DeviceId(0), footprint}}});
  }
  return setup;
}

std::vector<Answer> answers(const TwinSetup& setup, const std::vector<Ask>& asks) {
  Twin twin(setup);
  return twin.run(asks, 1s, [](Duration) {});
}

TEST(Twin, AFirstTokenWaitsForTheWeightsAndALaterOneDoesNot) {
  const std::vector<Answer> all = answers(
      setup_of(1, 24), {{Instant(0s), ModelId(1), 10, 5}, {Instant(5s), ModelId(1), 10, 5}});
  ASSERT_EQ(all[0].error, "");
  EXPECT_GT(all[0].first, Instant(1s));
  EXPECT_LT(all[0].first, Instant(1s + 20ms));
  EXPECT_GT(all[1].first, Instant(5s + 30ms));
  EXPECT_LT(all[1].first, Instant(5s + 35ms)) << "20 ms, and 1 ms for each of 10 tokens";
  EXPECT_EQ(all[1].tokens, 5);
  EXPECT_EQ(all[1].last - all[1].first, 4 * 21ms);
}

TEST(Twin, ModelsThatDoNotFitTogetherTakeTurns) {
  const TwinSetup setup = setup_of(2, 24);
  std::vector<Ask> asks;
  for (int i = 0; i < 6; ++i) {
    asks.push_back({Instant(i * 3s), ModelId(static_cast<std::uint64_t>(1 + i % 2)), 10, 5});
  }
  Twin twin(setup);
  std::vector<Duration> moments;
  const std::vector<Answer> all = twin.run(asks, 1s, [&](Duration at) { moments.push_back(at); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].error, "");
    EXPECT_GT(all[i].first - asks[i].at, 1s) << i;
  }
  std::uint64_t loads = 0;
  for (const core::ModelStatus& model : twin.models()) {
    for (const std::uint64_t count : model.loads) {
      loads += count;
    }
  }
  EXPECT_EQ(loads, 6U);
  EXPECT_GE(moments.size(), 16U);
  EXPECT_FALSE(twin.decisions().empty());
  EXPECT_GT(twin.devices().at(0).steps, 0U);
}

TEST(Twin, AModelThatWasIdleForTooLongIsGivenUp) {
  TwinSetup setup = setup_of(1, 24);
  setup.models[0].ttl = 2s;
  const std::vector<Answer> all = answers(setup,
                                          {{Instant(0s), ModelId(1), 10, 1},
                                           {Instant(2s), ModelId(1), 10, 1},
                                           {Instant(9s), ModelId(1), 10, 1}});
  EXPECT_LT(all[1].first, Instant(3s));
  EXPECT_GT(all[2].first, Instant(10s));
}

TEST(Twin, WhatIsPreloadedIsThereWhenItIsAskedFor) {
  TwinSetup setup = setup_of(2, 48);
  setup.preload = {ModelId(1)};
  Twin twin(setup);
  twin.rest(Instant(3s));
  const std::vector<Answer> all = twin.run(
      {{Instant(0s), ModelId(1), 10, 5}, {Instant(5s), ModelId(2), 10, 5}}, 1s, [](Duration) {});
  EXPECT_LT(all[0].first, Instant(35ms));
  EXPECT_GT(all[1].first, Instant(6s));
}

TEST(Twin, WhatCannotBeIsAnError) {
  const std::vector<Answer> all = answers(setup_of(1, 20), {{Instant(0s), ModelId(1), 900, 5}});
  EXPECT_NE(all[0].error, "");
  EXPECT_EQ(all[0].tokens, 0);
}

TEST(Twin, ADeathIsAPauseToRequests) {
  const std::vector<Ask> asks{{Instant(0s), ModelId(1), 10, 50}, {Instant(4s), ModelId(1), 10, 50}};
  const FaultPlan faults{.seed = 5, .deaths = 4, .deaths_within = 6s};
  Twin twin(setup_of(1, 24), faults);
  const std::vector<Answer> all = twin.run(asks, 1s, [](Duration) {});
  const std::vector<Answer> smooth = answers(setup_of(1, 24), asks);
  EXPECT_GT(twin.lives().size(), 2U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].error, "");
    EXPECT_EQ(all[i].tokens, 50);
  }
  EXPECT_GT(all[0].last, smooth[0].last);
}

/// The first model is sharded over both of two devices; others go on either.
TwinSetup setup_cut(int models, std::int64_t device_pages) {
  TwinSetup setup = setup_of(models + 2, device_pages);
  const core::AgentDevice second{.id = DeviceId(1), .pages = device_pages, .copy = true};
  setup.hosts[0].agent.devices.push_back(second);
  setup.hosts[0].devices.push_back(setup.hosts[0].devices[0]);
  setup.hosts[0].devices[1].device = second;
  setup.hosts[0].devices[1].worker.device = DeviceId(1);
  setup.manager.devices.push_back(setup.manager.devices[0]);
  setup.manager.devices[1].id = DeviceId(1);
  setup.manager.devices[1].name = "b";
  core::ManagerModel& whole = setup.manager.models[0];
  core::ManagerModel& shard = setup.manager.models[1];
  for (std::size_t i = 2; i < setup.manager.models.size(); ++i) {
    setup.manager.models[i].footprints[DeviceId(1)] = whole.footprints.at(DeviceId(0));
  }
  shard.part_of = whole.id;
  shard.footprints = {{DeviceId(1), whole.footprints.at(DeviceId(0))}};
  whole.groups[DeviceId(0)] = {{.model = shard.id, .device = DeviceId(1)}};
  return setup;
}

TEST(Twin, AModelThatIsCutLoadsOnAllItsDevicesAtOnceAndRunsAtThePaceOfTheSlowest) {
  TwinSetup setup = setup_cut(0, 24);
  setup.hosts[0].devices[1].pace_step = 40ms;
  const std::vector<Answer> all =
      answers(setup, {{Instant(0s), ModelId(1), 10, 5}, {Instant(5s), ModelId(1), 10, 5}});
  ASSERT_EQ(all[0].error, "");
  EXPECT_GT(all[0].first, Instant(1s));
  EXPECT_LT(all[0].first, Instant(1200ms)) << "both links bring a shard in a second";
  EXPECT_GT(all[1].first, Instant(5s + 50ms));
  EXPECT_LT(all[1].first, Instant(5s + 55ms));
  EXPECT_EQ(all[1].last - all[1].first, 4 * 41ms);
}

TEST(Twin, ModelsThatAreCutTakeTurnsWithOthersAndAreForeseen) {
  TwinSetup setup = setup_cut(2, 40);
  setup.manager.options.planner = {
      .prewarm = true, .value = true, .period = 250ms, .calendar = {.window = 5s}};
  std::vector<Ask> asks;
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t models[] = {1, 1, 3, 4};
    asks.push_back({Instant(i * 2500ms), ModelId(models[i % 4]), 10, 5});
  }
  Twin twin(setup);
  const std::vector<Answer> all = twin.run(asks, 1s, [](Duration) {});
  for (const Answer& answer : all) {
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.tokens, 5);
  }
  EXPECT_GT(twin.models().at(0).loads[static_cast<std::size_t>(core::LoadReason::kForecast)], 0U);
  EXPECT_GT(twin.models().at(0).demand.starts[static_cast<std::size_t>(core::StartKind::kHit)], 0U);
}

/// As setup_of(); the last two models are engines on its device, or on one of their own. They start
/// in 4 s, sleep in 50 ms and come back in 800 ms, and begin to answer after 50 ms.
TwinSetup setup_with_engines(int models, std::int64_t device_pages, bool own_device) {
  TwinSetup setup = setup_of(models, device_pages);
  const DeviceId device(own_device ? 1 : 0);
  if (own_device) {
    setup.manager.devices.push_back(setup.manager.devices[0]);
    setup.manager.devices[1].id = device;
    setup.manager.devices[1].name = "engines";
    setup.hosts[0].engine_devices = {{.id = device, .pages = device_pages}};
  }
  for (int i = 1; i <= 2; ++i) {
    const ModelId id(static_cast<std::uint64_t>(models + i));
    setup.hosts[0].engines.push_back(
        {.hosted = {.model = id,
                    .device = device,
                    .pages = 20,
                    .levels = {spec::SuspendLevel::kSleep, spec::SuspendLevel::kStop}},
         .start = 4s,
         .stop = 100ms,
         .held_pages = 20,
         .suspensions = {{spec::SuspendLevel::kSleep, {.out = 50ms, .in = 800ms, .held_pages = 2}}},
         .first_token = 50ms,
         .token = 10ms});
    setup.manager.models.push_back({.id = id,
                                    .name = "e" + std::to_string(i),
                                    .context = 1,
                                    .footprints = {{device, {.image_pages = 20}}},
                                    .external = core::ExternalModel{}});
  }
  return setup;
}

TEST(Twin, EnginesTakeTurnsOnADeviceOfTheirOwn) {
  TwinSetup setup = setup_with_engines(0, 30, true);
  std::vector<Ask> asks;
  for (int i = 0; i < 6; ++i) {
    asks.push_back({Instant(i * 10s), ModelId(static_cast<std::uint64_t>(1 + i % 2)), 10, 5});
  }
  Twin twin(setup);
  const std::vector<Answer> all = twin.run(asks, 1s, [](Duration) {});
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].error, "");
    EXPECT_EQ(all[i].tokens, 5);
    const Duration first = all[i].first - asks[i].at;
    EXPECT_GT(first, i < 2 ? 4s : 800ms) << "it starts once, and wakes up later";
    EXPECT_LT(first, i < 2 ? 4200ms : 1s);
    EXPECT_EQ(all[i].last - all[i].first, 40ms);
  }
  const std::vector<core::EngineStatus> engines = twin.engines();
  ASSERT_EQ(engines.size(), 2U);
  EXPECT_EQ(engines[0].starts, 1U);
  EXPECT_GT(engines[0].costs[static_cast<std::size_t>(spec::SuspendLevel::kSleep)].times, 1U);
}

TEST(Twin, EnginesBorrowTheirMemoryOfTheDeviceOfModels) {
  for (const bool checked : {false, true}) {
    TwinSetup setup = setup_with_engines(2, 44, false);
    setup.checked = checked;
    std::vector<Ask> asks;
    for (int i = 0; i < 24; ++i) {
      asks.push_back({Instant(i * 6s), ModelId(static_cast<std::uint64_t>(1 + i % 4)), 10, 5});
    }
    Twin twin(setup);
    const std::vector<Answer> all = twin.run(asks, 1s, [](Duration) {});
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].error, "") << i;
      EXPECT_EQ(all[i].tokens, 5) << i;
    }
    const core::EngineStatus engine = twin.engines().at(0);
    EXPECT_EQ(engine.starts, 1U);
    const core::ModelStatus model = twin.models().at(0);
    const std::uint64_t loads =
        std::accumulate(model.loads.begin(), model.loads.end(), std::uint64_t{0});
    EXPECT_GT(loads, 1U) << "an engine had it leave";
  }
}

// Whatever is awake, a request of a model has room beside it.
TEST(Twin, AnyLoadOfModelsAndEnginesIsAnsweredThoughWorkersDie) {
  const std::uint64_t seed = 20261128;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 24; ++round) {
    SCOPED_TRACE(round);
    TwinSetup setup = setup_with_engines(2, 64 + 8 * (round % 3), round % 2 == 0);
    setup.checked = round % 3 != 0;
    setup.hosts[0].engines[0].hosted.levels.insert(setup.hosts[0].engines[0].hosted.levels.begin(),
                                                   spec::SuspendLevel::kReclaim);
    setup.hosts[0].engines[0].suspensions[spec::SuspendLevel::kReclaim] = {
        .out = 20ms, .in = 200ms, .held_pages = static_cast<std::int64_t>(rng.below(20))};
    setup.manager.models[2].external->drain = 500ms;
    setup.manager.options.planner = {
        .prewarm = round % 4 != 0, .value = true, .period = 250ms, .calendar = {.window = 5s}};
    std::vector<Ask> asks;
    Duration at{};
    for (int i = 0; i < 60; ++i) {
      at += Duration(static_cast<Duration::rep>(rng.below(3'000'000'000)));
      asks.push_back({Instant(at),
                      ModelId(1 + rng.below(4)),
                      static_cast<std::int64_t>(1 + rng.below(60)),
                      static_cast<std::int64_t>(1 + rng.below(40))});
    }
    const FaultPlan faults{.seed = rng.next(), .deaths = round % 4, .deaths_within = 60s};
    std::vector<std::vector<Answer>> plays;
    for (int play = 0; play < 2; ++play) {
      Twin twin(setup, faults);
      plays.push_back(twin.run(asks, 1s, [](Duration) {}));
    }
    for (std::size_t i = 0; i < asks.size(); ++i) {
      const Answer& answer = plays[0][i];
      EXPECT_EQ(answer.error, "") << i;
      EXPECT_EQ(answer.tokens, asks[i].output_tokens) << i;
      EXPECT_EQ(answer.first, plays[1][i].first);
      EXPECT_EQ(answer.last, plays[1][i].last);
    }
  }
}

TEST(Twin, AnEngineThatIsForeseenIsThereWhenItIsAskedFor) {
  for (const bool prewarm : {true, false}) {
    TwinSetup setup = setup_with_engines(0, 30, true);
    setup.manager.options.planner = {.prewarm = prewarm,
                                     .value = true,
                                     .period = 100ms,
                                     .calendar = {.window = 4s, .windows_per_day = 4}};
    std::vector<Ask> asks;
    for (int i = 0; i < 60; ++i) {
      asks.push_back({Instant(i * 8s + 2s), ModelId(static_cast<std::uint64_t>(1 + i % 2)), 10, 5});
    }
    Twin twin(setup);
    const std::vector<Answer> all = twin.run(asks, 1s, [](Duration) {});
    int warm = 0;
    for (std::size_t i = 40; i < all.size(); ++i) {
      EXPECT_EQ(all[i].error, "");
      warm += all[i].first - asks[i].at < 100ms ? 1 : 0;
    }
    EXPECT_EQ(warm, prewarm ? 20 : 0);
  }
}

TEST(Twin, AnEngineThatWasIdleForTooLongIsGivenUp) {
  TwinSetup setup = setup_with_engines(0, 60, true);
  setup.hosts[0].engines[0].ttl = 2s;
  const std::vector<Answer> all = answers(setup,
                                          {{Instant(0s), ModelId(1), 10, 1},
                                           {Instant(5s), ModelId(1), 10, 1},
                                           {Instant(12s), ModelId(1), 10, 1}});
  EXPECT_LT(all[1].first, Instant(5100ms));
  EXPECT_GT(all[2].first, Instant(12800ms));
}

TEST(Twin, AnyLoadIsAnsweredAndTheSameEachTime) {
  const std::uint64_t seed = 20261122;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 20; ++round) {
    const bool cut = round % 4 == 3;
    TwinSetup setup =
        cut ? setup_cut(3, 24 + 10 * (round % 3)) : setup_of(4, 24 + 10 * (round % 4));
    for (std::size_t i = 0; i < setup.hosts[0].devices.size(); ++i) {
      setup.hosts[0].devices[i].worker.prefix_cache = round % 2 == 0 ? 100 : 0;
      setup.hosts[0].agent.devices[i].copy = setup.hosts[0].devices[i].device.copy = round % 3 != 0;
    }
    setup.manager.options.planner = {
        .prewarm = round % 5 != 0, .value = true, .period = 250ms, .calendar = {.window = 5s}};
    std::vector<Ask> asks;
    Duration at{};
    for (int i = 0; i < 60; ++i) {
      at += Duration(static_cast<Duration::rep>(rng.below(1'000'000'000)));
      const std::uint64_t model = 1 + rng.below(4);
      asks.push_back({Instant(at),
                      ModelId(cut && model > 1 ? model + 1 : model),
                      static_cast<std::int64_t>(1 + rng.below(200)),
                      static_cast<std::int64_t>(1 + rng.below(60))});
    }
    const std::vector<Answer> once = answers(setup, asks);
    const std::vector<Answer> again = answers(setup, asks);
    for (std::size_t i = 0; i < asks.size(); ++i) {
      EXPECT_EQ(once[i].error, "");
      EXPECT_EQ(once[i].tokens, asks[i].output_tokens);
      EXPECT_GT(once[i].first, asks[i].at);
      EXPECT_EQ(once[i].first, again[i].first);
      EXPECT_EQ(once[i].last, again[i].last);
    }
  }
}

}  // namespace
}  // namespace heddle::twin
