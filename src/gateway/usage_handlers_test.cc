#include <gmock/gmock.h>

#include "gateway/context.h"
#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

class UsageTest : public GatewayTest {
 protected:
  UsageTest() {
    config.api_keys = {{.key = "one", .name = "alice"},
                       {.key = "two", .name = "bob", .requests_per_minute = 2},
                       {.key = "three", .tokens_per_minute = 1},
                       {.key = "root", .name = "root", .role = config::Role::kAdmin}};
    serving.reply = "yes";
  }

  TestResponse as(const std::string& key,
                  const std::string& method,
                  const std::string& path,
                  const std::string& body = {}) const {
    return call(method, path, body, "Authorization: Bearer " + key + "\r\n");
  }
  TestResponse chat_as(const std::string& key) const {
    return as(key, "POST", "/v1/chat/completions", chat_body());
  }
};

TEST_F(UsageTest, IsShownByKeyAndModelToWhoseItIs) {
  start();
  EXPECT_EQ(chat_as("one").status, 200);
  EXPECT_EQ(chat_as("one").status, 200);
  EXPECT_EQ(chat_as("three").status, 200);
  const json own = json::parse(as("one", "GET", "/api/usage").body)["usage"];
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0]["key"], "alice");
  EXPECT_EQ(own[0]["model"], "tiny");
  EXPECT_EQ(own[0]["requests"], 2);
  EXPECT_EQ(own[0]["prompt_tokens"], 18);
  EXPECT_EQ(own[0]["completion_tokens"], 8) << "three bytes and the end of turn, twice";
  const json all = json::parse(as("root", "GET", "/api/usage?by=day&days=1").body)["usage"];
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(all[0].contains("day"));
  EXPECT_THAT(all[1]["key"].get<std::string>(), testing::StartsWith("key-"))
      << "a key without a name has one that does not tell it";
  EXPECT_EQ(as("root", "GET", "/api/usage?days=x").status, 400);
}

TEST_F(UsageTest, BeyondItsRequestsAKeyWaits) {
  start();
  const TestResponse first = chat_as("two");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(as("two", "POST", "/tokenize", R"({"model":"tiny","prompt":"x"})").status, 200);
  const TestResponse refused = chat_as("two");
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_EQ(refused.headers.at("x-ratelimit-remaining-requests"), "0");
  const json error = json::parse(refused.body)["error"];
  EXPECT_EQ(error["code"], "rate_limit_exceeded");
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(as("two", "GET", "/v1/models").status, 200) << "listings are not counted";
  EXPECT_FALSE(chat_as("one").headers.contains("x-ratelimit-limit-requests"));
}

TEST_F(UsageTest, BeyondItsTokensAKeyWaits) {
  start();
  EXPECT_EQ(chat_as("three").status, 200);
  EXPECT_EQ(chat_as("three").status, 429);
}

TEST_F(UsageTest, WhatWasUsedIsKeptAndThereAgain) {
  std::vector<spec::KeyUsage> kept;
  options.keep_usage = [&kept](const std::vector<spec::KeyUsage>& rows) {
    kept.insert(kept.end(), rows.begin(), rows.end());
  };
  options.past_usage = {
      {.day = wall_clock_ms() / 86'400'000, .key = "alice", .model = "old", .requests = 7}};
  start();
  EXPECT_EQ(chat_as("one").status, 200);
  const json own = json::parse(as("one", "GET", "/api/usage").body)["usage"];
  ASSERT_EQ(own.size(), 2U);
  EXPECT_EQ(own[0]["requests"], 7);
  on_loop([this] { gateway.reset(); });
  ASSERT_EQ(kept.size(), 1U) << "what was there already is not kept twice";
  EXPECT_EQ(kept[0].model, "tiny");
  EXPECT_EQ(kept[0].requests, 1);
}

}  // namespace
}  // namespace heddle::gateway
