#include "manager/model_registry.h"

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

constexpr HostId kHost{0};
constexpr HostId kOther{1};

ConfiguredModel model(const std::string& name,
                      const std::string& digest = "d",
                      std::size_t ranks = 1) {
  ConfiguredModel made;
  made.config.id = name;
  made.config.path = "models/" + name;
  made.config.tensor_parallel = static_cast<std::int64_t>(ranks);
  made.offers[kHost] = {.name = name, .digest = digest};
  made.offers[kHost].ranks.resize(ranks);
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
}

TEST(ModelRegistry, AModelThatChangedOrCameBackIsAnother) {
  ModelRegistry registry;
  registry.assign({model("a")});
  const ModelId first = registry.models()[0].id;
  registry.assign({model("a", "e")});
  const ModelId second = registry.models()[0].id;
  EXPECT_GT(second, first);
  EXPECT_EQ(registry.find(first), nullptr);
  ConfiguredModel rewritten = model("a", "e");
  rewritten.offers[kHost].written = 1;
  registry.assign({rewritten});
  EXPECT_GT(registry.models()[0].id, second) << "weights may differ where headers do not";
  const ModelId third = registry.models()[0].id;
  registry.assign({});
  registry.assign({rewritten});
  EXPECT_GT(registry.models()[0].id, third);
}

/// A model that hosts may fetch together in two stages or three.
ConfiguredModel cut_model(const std::string& name) {
  ConfiguredModel made = model(name);
  made.offers[kHost].cuts.resize(2);
  made.offers[kHost].cuts[0].stages.resize(2);
  made.offers[kHost].cuts[1].stages.resize(3);
  return made;
}

TEST(ModelRegistry, StagesOfCutsHaveIdsAndNamesOfTheirOwnAndKeepThem) {
  ModelRegistry registry;
  registry.assign({cut_model("a")});
  const auto cuts = registry.models()[0].cuts;
  ASSERT_EQ(cuts.size(), 2U);
  ASSERT_EQ(cuts[1].size(), 3U);
  EXPECT_EQ(registry.name(cuts[0][0]), "a (stage 1 of 2)");
  EXPECT_EQ(registry.name(cuts[1][2]), "a (stage 3 of 3)");
  registry.assign({cut_model("a")});
  EXPECT_EQ(registry.models()[0].cuts, cuts);

  ModelRegistry next;
  next.remember(
      {{.name = "a",
        .digest = "d",
        .ids = {ModelId(2), ModelId(4), ModelId(5), ModelId(6), ModelId(7), ModelId(8)}}});
  next.assign({cut_model("a")});
  EXPECT_EQ(next.models()[0].cuts,
            (std::vector<std::vector<ModelId>>{{ModelId(4), ModelId(5)},
                                               {ModelId(6), ModelId(7), ModelId(8)}}))
      << "as an earlier manager called them";

  ConfiguredModel narrower = cut_model("a");
  narrower.offers[kHost].cuts.pop_back();
  registry.assign({narrower});
  registry.assign({cut_model("a")});
  EXPECT_NE(registry.models()[0].cuts[1], cuts[1]) << "what was removed never comes back";
}

TEST(ModelRegistry, ShardsHaveIdsAndNamesOfTheirOwnAndKeepThem) {
  ModelRegistry registry;
  const ConfiguredModel sharded = model("a", "d", 2);
  registry.assign({sharded});
  ASSERT_EQ(registry.models()[0].shards.size(), 1U);
  const ModelId shard = registry.models()[0].shards[0];
  EXPECT_NE(shard, registry.models()[0].id);
  EXPECT_EQ(registry.name(shard), "a[1]");
  EXPECT_EQ(registry.find(shard), nullptr) << "nobody can ask for it";
  registry.assign({model("b"), sharded});
  EXPECT_EQ(registry.models()[1].shards[0], shard);
  registry.assign({model("a")});
  EXPECT_EQ(registry.name(shard), "") << "sharded otherwise, it is another model";
}

TEST(ModelRegistry, AModelThatCanBeOpenedAtLastIsAnother) {
  ModelRegistry registry;
  ConfiguredModel missing = model("a", "");
  missing.offers[kHost].failure = Error{Code::kNotFound, "no such directory"};
  registry.assign({missing});
  const ModelId before = registry.models()[0].id;
  EXPECT_EQ(registry.models()[0].failure()->message, "no such directory");
  registry.assign({model("a")});
  EXPECT_NE(registry.models()[0].id, before);
  EXPECT_FALSE(registry.models()[0].failure().has_value());
}

TEST(ModelRegistry, AHostThatComesLaterChangesNoIds) {
  ModelRegistry registry;
  ConfiguredModel unknown = model("a");
  const host::Offer offer = unknown.offers[kHost];
  unknown.offers.clear();
  registry.assign({unknown});
  const ModelId id = registry.models()[0].id;
  EXPECT_EQ(registry.models()[0].failure()->code, Code::kUnavailable) << "nobody has told of it";
  registry.assign({model("a")});
  EXPECT_EQ(registry.models()[0].id, id);
  ConfiguredModel both = model("a");
  both.offers[kOther] = offer;
  registry.assign({both});
  EXPECT_EQ(registry.models()[0].id, id);
  EXPECT_TRUE(registry.models()[0].served_by(kOther));
}

TEST(ModelRegistry, AHostThatCanOpenItAtLastChangesNoIds) {
  ModelRegistry registry;
  ConfiguredModel one = model("a");
  one.offers[kOther] = {.name = "a", .failure = Error{Code::kUnavailable, "its source is away"}};
  registry.assign({one});
  const ModelId before = registry.models()[0].id;
  one.offers[kOther] = one.offers[kHost];
  registry.assign({one});
  EXPECT_EQ(registry.models()[0].id, before);
  one.offers[kOther].written = 1;
  registry.assign({one});
  EXPECT_GT(registry.models()[0].id, before);
}

TEST(ModelRegistry, WhatIsServedStaysWhereAHostBringsAnotherModelOfTheName) {
  ModelRegistry registry;
  ConfiguredModel late = model("a");
  late.offers[kOther] = late.offers[kHost];
  late.offers.erase(kHost);
  registry.assign({late});
  ConfiguredModel both = late;
  both.offers[kHost] = {.name = "a", .digest = "another", .ranks = {{}}};
  registry.assign({both});
  EXPECT_TRUE(registry.models()[0].served_by(kOther));
  EXPECT_FALSE(registry.models()[0].served_by(kHost)) << "though it is the first";
}

TEST(ModelRegistry, IdsOfAnEarlierManagerGoOnToMeanWhatTheyDid) {
  ModelRegistry registry;
  ConfiguredModel unknown = model("a");
  unknown.offers.clear();
  registry.assign({unknown});
  registry.remember({{.name = "a", .digest = "d", .ids = {ModelId(7), ModelId(8)}},
                     {.name = "b", .digest = "before", .ids = {ModelId(9)}}});
  registry.assign({model("c"), model("a", "d", 2), model("b", "now")});
  EXPECT_EQ(registry.models()[1].id, ModelId(7));
  EXPECT_EQ(registry.models()[1].shards, std::vector{ModelId(8)});
  EXPECT_GT(registry.models()[0].id, ModelId(9));
  EXPECT_GT(registry.models()[2].id, ModelId(9)) << "it has other files";
  ModelRegistry next;
  next.assign({unknown});
  next.remember({{.name = "a", .digest = "d", .ids = {next.models()[0].id, ModelId(8)}}});
  next.assign({model("a", "d", 2)});
  EXPECT_EQ(next.models()[0].shards, std::vector{ModelId(8)}) << "it had the same id meanwhile";
  registry.remember({{.name = "d", .digest = "d", .ids = {registry.models()[0].id}}});
  registry.assign({model("c"), model("d")});
  EXPECT_NE(registry.models()[1].id, registry.models()[0].id) << "one host calls two models so";
}

}  // namespace
}  // namespace heddle::manager
