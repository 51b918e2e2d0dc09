#include "host/opened_model.h"

#include <gtest/gtest.h>

#include "base/test_places.h"

namespace heddle::host {
namespace {

TEST(OpenedModel, OpensWhatThereIsAndSaysWhatIsNot) {
  config::Config config;
  config.directory = places::kSources;
  config.devices.push_back({.name = "cpu0", .memory = std::uint64_t{8} << 20U});
  for (const char* path : {"tests/golden/qwen3-tied", "tests/golden"}) {
    config.models.push_back({.id = path, .path = path});
  }
  const std::int64_t tokens = choose_batch_tokens(config);
  EXPECT_GE(tokens, 16);
  EXPECT_LE(tokens, 512);
  config::Config said = config;
  said.host.step_tokens = 48;
  EXPECT_EQ(choose_batch_tokens(said), 48);
  const auto models =
      open_models(config, {.page_bytes = std::size_t{64} << 10U, .max_batch_tokens = tokens});
  ASSERT_TRUE(models[0].ranks) << models[0].ranks.error().message;
  EXPECT_EQ(models[0].ranks->front().name, "tests/golden/qwen3-tied");
  EXPECT_GT(models[0].ranks->front().footprint.image_pages, 0);
  EXPECT_GT(models[0].ranks->front().footprint.min_kv_pages, 0);
  EXPECT_FALSE(models[1].ranks) << "a directory without a model";

  const std::vector<Offer> offered = offers(config, HostId(4), models);
  EXPECT_EQ(offered[0].digest.size(), 64U);
  EXPECT_NE(offered[0].written, 0);
  EXPECT_GT(offered[0].context, 0);
  EXPECT_EQ(offered[0].ranks[0].footprints.begin()->first, device_id(HostId(4), 0));
  EXPECT_FALSE(offered[0].failure.has_value());
  EXPECT_TRUE(offered[1].failure.has_value());
}

TEST(OpenedModel, WithKvInCodesIsAnotherModelAndIsForEveryDevice) {
  config::Config config;
  config.directory = places::kSources;
  config.devices.push_back({.name = "cpu0", .memory = std::uint64_t{8} << 20U});
  for (const spec::KvType kv : {spec::KvType::kComputed, spec::KvType::kI8, spec::KvType::kF8}) {
    config.models.push_back({.id = "m", .path = "tests/golden/qwen3-tied", .kv = kv});
  }
  const agent::HostGeometry geometry{.page_bytes = std::size_t{64} << 10U, .max_batch_tokens = 64};
  const auto models = open_models(config, geometry);
  for (const auto kind : {config::DeviceKind::kCpu, config::DeviceKind::kCuda}) {
    config.devices[0].kind = kind;
    const std::vector<Offer> offered = offers(config, HostId(4), models);
    EXPECT_EQ(offered[1].digest, offered[0].digest + ":kv-int8");
    EXPECT_EQ(offered[2].digest, offered[0].digest + ":kv-FP8");
    for (const Offer& offer : offered) {
      EXPECT_FALSE(offer.failure);
    }
  }
}

TEST(OpenedModel, WithInputsAsTheyAreIsAnotherModel) {
  config::Config config;
  config.directory = places::kSources;
  config.devices.push_back({.name = "cpu0", .memory = std::uint64_t{8} << 20U});
  for (const bool f8 : {true, false}) {
    config.models.push_back({.id = "m", .path = "tests/golden/qwen3-tied", .f8_inputs = f8});
  }
  const agent::HostGeometry geometry{.page_bytes = std::size_t{64} << 10U, .max_batch_tokens = 64};
  const std::vector<Offer> offered = offers(config, HostId(4), open_models(config, geometry));
  EXPECT_EQ(offered[1].digest, offered[0].digest + ":bf16-inputs");
}

}  // namespace
}  // namespace heddle::host
