#include "twin/twin.h"

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
  TwinSetup setup{.agent = {.host_pages = 100}};
  const core::AgentDevice device{.id = DeviceId(0), .pages = device_pages, .copy = true};
  setup.agent.devices = {device};
  setup.devices = {{.device = device,
                    .worker = {.device = DeviceId(0),
                               .pages = device_pages,
                               .step = {.budget = 150ms, .max_batch_tokens = 64}},
                    .pace_step = 20ms,
                    .pace_token = 1ms,
                    .link = static_cast<double>(kImagePages * kPage)}};
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

TEST(Twin, WhatCannotBeIsAnError) {
  const std::vector<Answer> all = answers(setup_of(1, 20), {{Instant(0s), ModelId(1), 900, 5}});
  EXPECT_NE(all[0].error, "");
  EXPECT_EQ(all[0].tokens, 0);
}

TEST(Twin, AnyLoadIsAnsweredAndTheSameEachTime) {
  const std::uint64_t seed = 20261122;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 20; ++round) {
    TwinSetup setup = setup_of(4, 24 + 10 * (round % 4));
    setup.devices[0].worker.prefix_cache = round % 2 == 0 ? 100 : 0;
    setup.agent.devices[0].copy = setup.devices[0].device.copy = round % 3 != 0;
    setup.manager.options.planner = {
        .prewarm = round % 5 != 0, .value = true, .period = 250ms, .calendar = {.window = 5s}};
    std::vector<Ask> asks;
    Duration at{};
    for (int i = 0; i < 60; ++i) {
      at += Duration(static_cast<Duration::rep>(rng.below(1'000'000'000)));
      asks.push_back({Instant(at),
                      ModelId(1 + rng.below(4)),
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
