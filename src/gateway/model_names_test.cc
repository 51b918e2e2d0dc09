#include "gateway/model_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using config::SelectorStrategy;

class ModelNamesTest : public testing::Test {
 protected:
  void assign(SelectorStrategy strategy, std::int64_t spillover = 1) {
    config::Config config;
    config.selectors = {
        {.id = "any", .strategy = strategy, .targets = {"a", "b", "c"}, .spillover = spillover}};
    config.profiles = {{.id = "coding", .pins = {{"llm", "any"}, {"plan", "b"}, {"gone", ""}}}};
    names.assign(config);
  }
  std::optional<ModelNames::Meant> resolve(const std::string& name) {
    return names.resolve(name, [this](const std::string& model) { return standing[model]; });
  }
  std::string model_of(const std::string& name) {
    const auto meant = resolve(name);
    return meant ? meant->model : "itself";
  }

  ModelNames names{};
  std::map<std::string, Standing> standing{};
};

TEST_F(ModelNamesTest, WithoutAnyNamesMeanThemselves) {
  EXPECT_TRUE(names.empty());
  EXPECT_EQ(model_of("any"), "itself");
}

TEST_F(ModelNamesTest, APinIsTheFirstTarget) {
  assign(SelectorStrategy::kPin);
  EXPECT_FALSE(names.empty());
  standing["b"] = Standing::kReady;
  EXPECT_EQ(model_of("any"), "a");
  EXPECT_EQ(model_of("any:latest"), "a") << "as Ollama's clients spell it";
  EXPECT_EQ(model_of("other"), "itself");
}

TEST_F(ModelNamesTest, WarmPrefersWhatIsThereThenWhatComes) {
  assign(SelectorStrategy::kWarm);
  EXPECT_EQ(model_of("any"), "a");
  standing["c"] = Standing::kComing;
  EXPECT_EQ(model_of("any"), "c");
  standing["b"] = Standing::kReady;
  EXPECT_EQ(model_of("any"), "b");
  standing["a"] = Standing::kLeaving;
  EXPECT_EQ(model_of("any"), "b");
}

TEST_F(ModelNamesTest, SpilloverFillsTargetsInOrder) {
  assign(SelectorStrategy::kSpillover, 2);
  std::vector<ModelNames::Meant> sent;
  std::string order;
  for (int i = 0; i < 8; ++i) {
    sent.push_back(*resolve("any"));
    order += sent.back().model;
  }
  EXPECT_EQ(order, "aabbccab") << "two each, then the least busy";
  sent.erase(sent.begin() + 2, sent.begin() + 4);  // Those of b; it is not there either.
  sent.clear();
  standing["c"] = Standing::kReady;
  EXPECT_EQ(model_of("any"), "c") << "what is there goes before what would have to come";
  standing["a"] = standing["b"] = standing["c"] = Standing::kLeaving;
  EXPECT_EQ(model_of("any"), "a");
}

TEST_F(ModelNamesTest, SpilloverCountsRequestsThatHaveNotEnded) {
  assign(SelectorStrategy::kSpillover);
  standing["a"] = standing["b"] = Standing::kReady;
  auto first = resolve("any");
  EXPECT_EQ(first->model, "a");
  const auto second = resolve("any");
  EXPECT_EQ(second->model, "b");
  first.reset();
  EXPECT_EQ(model_of("any"), "a");
}

TEST_F(ModelNamesTest, ProfilesGoBeforeSelectors) {
  assign(SelectorStrategy::kPin);
  EXPECT_EQ(model_of("llm"), "itself") << "no profile is active";
  EXPECT_FALSE(names.activate("nobody"));
  EXPECT_TRUE(names.activate("coding"));
  EXPECT_EQ(names.active(), "coding");
  EXPECT_EQ(model_of("llm"), "a");
  EXPECT_EQ(model_of("plan:latest"), "b");
  EXPECT_EQ(model_of("gone"), "");
  EXPECT_EQ(names.pinned("llm"), "any");
  EXPECT_EQ(names.pinned("a"), std::nullopt);
  EXPECT_TRUE(names.activate(""));
  EXPECT_EQ(model_of("plan"), "itself");
  names.activate("coding");
  assign(SelectorStrategy::kPin);
  EXPECT_EQ(names.active(), "") << "a reload leaves none active";
}

}  // namespace
}  // namespace heddle::gateway
