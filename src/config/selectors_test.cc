#include "config/selectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<Config> parse_names(const std::string& text) {
  const Environment environment = [](const std::string& /*name*/) { return std::nullopt; };
  return parse_config(
      R"(
models:
  a: {cmd: "server --port ${PORT}", memory: 1GiB, aliases: [first]}
  b: {cmd: "server --port ${PORT}", memory: 1GiB}
peers:
  far: {proxy: "http://10.0.0.2:8080", models: [big]}
)" + text,
      "heddle.yaml",
      environment,
      {.cores = {0}, .memory = 8ULL << 30U});
}

TEST(Selectors, AreReadAsLlamaSwapHasThem) {
  const Result<Config> config = parse_names(R"(
includeAliasesInList: true
selectors:
  any: {strategy: warm, targets: [first, b], name: Any, metadata: {purpose: coding}}
  spill:
    strategy: spillover
    targets: [a, b, far/big]
    settings: {spillover: 4}
    unlisted: true
  fixed: {strategy: pin, targets: [big, a]}
profiles:
  coding:
    description: for code
    pins: {llm: any, "7": a, gone: ~}
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->list_aliases);
  ASSERT_EQ(config->selectors.size(), 3U);
  EXPECT_EQ(config->selectors[0].strategy, SelectorStrategy::kWarm);
  EXPECT_THAT(config->selectors[0].targets, ElementsAre("first", "b"));
  EXPECT_EQ(config->selectors[0].name, "Any");
  EXPECT_EQ(config->selectors[0].metadata, R"({"purpose":"coding"})");
  EXPECT_EQ(config->selectors[1].spillover, 4);
  EXPECT_TRUE(config->selectors[1].unlisted);
  EXPECT_EQ(config->selectors[2].strategy, SelectorStrategy::kPin);
  ASSERT_EQ(config->profiles.size(), 1U);
  EXPECT_EQ(config->profiles[0].description, "for code");
  EXPECT_THAT(config->profiles[0].pins,
              ElementsAre(Pair("llm", "any"), Pair("7", "a"), Pair("gone", "")));
}

TEST(Selectors, RefuseWhatCannotBeMeant) {
  const auto trouble = [](const std::string& text) {
    const Result<Config> config = parse_names(text);
    return config ? std::string("nothing") : config.error().message;
  };
  EXPECT_THAT(trouble("selectors: {x: {targets: [a]}}"), HasSubstr("strategy: is missing"));
  EXPECT_THAT(trouble("selectors: {x: {strategy: pin}}"), HasSubstr("targets: is missing"));
  EXPECT_THAT(trouble("selectors: {x: {strategy: pin, targets: [y]}}"),
              HasSubstr("selectors.x.targets: \"y\" is no model"));
  EXPECT_THAT(trouble("selectors: {first: {strategy: pin, targets: [a]}}"),
              HasSubstr("the name of a model already"));
  EXPECT_THAT(
      trouble("selectors: {x: {strategy: pin, targets: [a]}, y: {strategy: pin, targets: [x]}}"),
      HasSubstr("selectors.y.targets: \"x\" is no model"));
  EXPECT_THAT(trouble("selectors: {x: {strategy: warm, targets: [a, big]}}"),
              HasSubstr("\"big\" is a peer's"));
  EXPECT_THAT(trouble("selectors: {x: {strategy: spillover, targets: [a, first]}}"),
              HasSubstr("\"first\" is the same model"));
  EXPECT_THAT(trouble("groups: {g: {members: [a, b]}}\n"
                      "selectors: {x: {strategy: spillover, targets: [a, b]}}"),
              AllOf(HasSubstr("displace each other"), HasSubstr("selectors.x.targets")));
  EXPECT_THAT(trouble("profiles: {p: {pins: {x: nobody}}}"),
              HasSubstr("profiles.p.pins.x: \"nobody\" is neither a model nor a selector"));
  EXPECT_THAT(trouble("profiles: {p: {pins: {x: [a]}}}"), HasSubstr("x is no name of a model"));
  EXPECT_THAT(trouble("profiles: {p: [a, b]}"), HasSubstr("profiles"));
}

}  // namespace
}  // namespace heddle::config
