#include "manager/model_registry.h"

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

ConfiguredModel model(const std::string& name, std::uint64_t image_bytes = 100) {
  ConfiguredModel made;
  made.config.id = name;
  made.config.path = "models/" + name;
  made.host = agent::HostModel{.name = name, .image_bytes = image_bytes};
  return made;
}

TEST(ModelRegistry, AModelThatIsAsItWasKeepsItsId) {
  ModelRegistry registry;
  registry.assign({model("a"), model("b")});
  const ModelId a = registry.models()[0].id;
  const ModelId b = registry.models()[1].id;
  EXPECT_NE(a, b);
  registry.assign({model("b"), model("c"), model("a")});
  EXPECT_EQ(registry.models()[0].id, b);
  EXPECT_EQ(registry.models()[2].id, a);
  EXPECT_EQ(registry.models()[2].host->id, a);
}

TEST(ModelRegistry, AModelThatChangedOrCameBackIsAnother) {
  ModelRegistry registry;
  registry.assign({model("a")});
  const ModelId first = registry.models()[0].id;
  registry.assign({model("a", 200)});
  const ModelId second = registry.models()[0].id;
  EXPECT_GT(second, first);
  EXPECT_EQ(registry.find(first), nullptr);
  registry.assign({});
  registry.assign({model("a", 200)});
  EXPECT_GT(registry.models()[0].id, second);
}

TEST(ModelRegistry, ShardsHaveIdsAndNamesOfTheirOwnAndKeepThem) {
  ModelRegistry registry;
  ConfiguredModel sharded = model("a");
  sharded.shards = {{.name = "a[1]"}};
  registry.assign({sharded});
  const ModelId shard = registry.models()[0].shards[0].id;
  EXPECT_NE(shard, registry.models()[0].id);
  EXPECT_EQ(registry.name(shard), "a[1]");
  EXPECT_EQ(registry.find(shard), nullptr) << "nobody can ask for it";
  registry.assign({model("b"), sharded});
  EXPECT_EQ(registry.models()[1].shards[0].id, shard);
  registry.assign({model("a")});
  EXPECT_EQ(registry.name(shard), "") << "sharded otherwise, it is another model";
}

TEST(ModelRegistry, AModelThatCanBeOpenedAtLastIsAnother) {
  ModelRegistry registry;
  ConfiguredModel missing = model("a");
  missing.host = Error{Code::kNotFound, "no such directory"};
  registry.assign({missing});
  const ModelId before = registry.models()[0].id;
  registry.assign({model("a")});
  EXPECT_NE(registry.models()[0].id, before);
}

TEST(ModelRegistry, OpensWhatThereIsAndSaysWhatIsNot) {
  config::Config config;
  config.directory = HEDDLE_SOURCE_DIR;
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
  ASSERT_TRUE(models[0].host) << models[0].host.error().message;
  EXPECT_EQ(models[0].host->name, "tests/golden/qwen3-tied");
  EXPECT_GT(models[0].host->footprint.image_pages, 0);
  EXPECT_GT(models[0].host->footprint.min_kv_pages, 0);
  EXPECT_FALSE(models[1].host) << "a directory without a model";
}

}  // namespace
}  // namespace heddle::manager
