#include "api/error.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

TEST(ApiError, IsAlwaysAnObjectWithFourMembers) {
  const auto json = nlohmann::json::parse(to_json(invalid_request("n", "n: is \"x\"; want 1")));
  EXPECT_EQ(json["error"]["message"], "n: is \"x\"; want 1");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "n");
  EXPECT_TRUE(json["error"]["code"].is_null());
  EXPECT_EQ(json["error"].size(), 4U);
}

TEST(ApiError, EveryCodeHasItsStatus) {
  const std::pair<Code, int> cases[] = {{Code::kInvalidArgument, 400},
                                        {Code::kNotFound, 404},
                                        {Code::kFailedPrecondition, 409},
                                        {Code::kResourceExhausted, 429},
                                        {Code::kCancelled, 499},
                                        {Code::kCorrupt, 500},
                                        {Code::kUnavailable, 503},
                                        {Code::kDeadlineExceeded, 504}};
  for (const auto& [code, status] : cases) {
    const ApiError error = from_error({.code = code, .message = "m"});
    EXPECT_EQ(error.status, status);
    EXPECT_EQ(error.message, "m");
    EXPECT_FALSE(error.type.empty());
    EXPECT_EQ(error.retry_after > 0, status == 429 || status == 503);
  }
}

TEST(ApiError, WhatClientsSentIsShortened) {
  const std::string much(1'000'000, 'x');
  EXPECT_LT(to_json(invalid_request(much, much + much)).size(), 3'000U);
  EXPECT_LT(to_json(model_not_found(much, "a")).size(), 500U);
}

TEST(ApiError, TellsNoPathsOfThisMachine) {
  for (const auto& [message, told] : std::vector<std::pair<std::string, std::string>>{
           {"open model: there is no readable /srv/models/x/config.json",
            "open model: there is no readable config.json"},
           {"/srv/x/tokenizer.json: line 3", "tokenizer.json: line 3"},
           {"read '/srv/a b/c' (/srv/x/y/)", "read 'c' (y)"},
           {"path=/opt/vllm/bin/vllm: no such file", "path=vllm: no such file"},
           {"probe at /v1/completions: status 500", "probe at /v1/completions: status 500"},
           {"has no /health; set it", "has no /health; set it"},
           {"http://127.0.0.1:5800/a/b is down", "http://127.0.0.1:5800/a/b is down"},
           {"2/3 of it, a/b/c, and /", "2/3 of it, a/b/c, and /"},
           {"open \"/srv/a b/c\".", "open \"c\"."},
           {"/", "/"},
           {"", ""}}) {
    EXPECT_EQ(without_paths(message), told);
    EXPECT_EQ(from_error({.code = Code::kNotFound, .message = message}).message, told);
  }
}

TEST(ApiError, AnUnknownModelIsToldTheKnownOnes) {
  const ApiError error = model_not_found("x", "a, b");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.message, "model \"x\" does not exist; there are a, b");
}

}  // namespace
}  // namespace heddle::api
