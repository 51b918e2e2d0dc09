#include "config/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<Config> parse(const std::string& text) {
  return parse_config(
      text, "heddle.yaml", process_environment, {.cores = {0}, .memory = 1U << 30U});
}

TEST(Access, AKeyIsAStringOrSaysMore) {
  const Result<Config> config = parse(R"(apiKeys:
  - plain
  - {key: scraper, role: metrics}
  - {key: boss, name: operators, role: admin, priority: -5}
)");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->api_keys.size(), 3U);
  EXPECT_EQ(config->api_keys[0].key, "plain");
  EXPECT_EQ(config->api_keys[0].role, Role::kInference);
  EXPECT_FALSE(config->api_keys[0].priority);
  EXPECT_EQ(config->api_keys[1].role, Role::kMetrics);
  EXPECT_EQ(config->api_keys[2].role, Role::kAdmin);
  EXPECT_EQ(config->api_keys[2].name, "operators");
  EXPECT_EQ(config->api_keys[2].priority, -5);
  EXPECT_THAT(config->warnings, IsEmpty());
  EXPECT_EQ(parse("apiKeys: alone")->api_keys.at(0).key, "alone");
}

TEST(Access, KeysOfWhichNoneIsAnAdminsAreWarnedOf) {
  EXPECT_THAT(parse("apiKeys: [one, {key: two, role: metrics}]")->warnings,
              ElementsAre(HasSubstr("{key: KEY, role: admin}")));
  EXPECT_THAT(parse("apiKeys: []")->warnings, IsEmpty());
}

TEST(Access, HostsAndOriginsAreWrittenInOneWay) {
  const Result<Config> config = parse(R"(
allowed_hosts: [Models.Example., "models.example:8080", "[0::1]", "*"]
cors_origins: ["HTTPS://Chat.Example:443", "http://localhost:3000", "null", "*"]
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->allowed_hosts,
              ElementsAre("models.example", "models.example:8080", "::1", "*"));
  EXPECT_THAT(config->cors_origins,
              ElementsAre("https://chat.example", "http://localhost:3000", "null", "*"));
}

TEST(Access, WhatCannotBeMeantIsRefused) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"apiKeys: ['']", "a key is empty"},
           {"apiKeys: [{key: ''}]", "a key is empty"},
           {"apiKeys: [{role: admin}]", "apiKeys[0].key: is missing"},
           {"apiKeys: [{key: a, role: root}]", "\"root\" is not one of inference, metrics, admin"},
           {"apiKeys: [{key: a, priority: high}]", "apiKeys[0].priority"},
           {"apiKeys: [{key: a, rule: admin}]", "did you mean \"role\""},
           {"apiKeys: [a, {key: a, role: admin}]", "a key is there twice"},
           {"apiKeys: {key: a}", "apiKeys: is a map"},
           {"apiKeys: [[a]]", "apiKeys[0] is a list"},
           {"allowed_hosts: [http://a]", "\"http://a\" is no name of a host"},
           {"cors_origins: [chat.example]", "\"chat.example\" is no origin"},
           {"cors_origins: ['https://chat.example/']", "without a path"}}) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(says)) << text;
  }
}

}  // namespace
}  // namespace heddle::config
