#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ModelHandlersTest : public GatewayTest {};

TEST_F(ModelHandlersTest, ListsModelsWithStatesThatClientsKnow) {
  serving.residency[ModelId(2)] = core::Residency::kLoading;
  start();
  for (const char* path : {"/v1/models", "/models"}) {
    const auto list = ask("GET", path);
    EXPECT_EQ(list["object"], "list");
    ASSERT_EQ(list["data"].size(), 2U);
    EXPECT_EQ(list["data"][0]["id"], "tiny");
    EXPECT_EQ(list["data"][0]["name"], "Tiny");
    EXPECT_EQ(list["data"][0]["status"]["value"], "unloaded");
    EXPECT_EQ(list["data"][1]["status"]["value"], "loading");
    EXPECT_EQ(list["data"][1]["status"]["progress"], 0.25);
    EXPECT_EQ(list["data"][1]["status"]["device"], "cpu0");
  }
}

TEST_F(ModelHandlersTest, RetrievesByNamesWithSlashesAndColonsAndByAlias) {
  start();
  EXPECT_EQ(ask("GET", "/v1/models/org/name:8b")["id"], "org/name:8b");
  EXPECT_EQ(ask("GET", "/v1/models/org%2Fname%3A8b")["id"], "org/name:8b");
  EXPECT_EQ(ask("GET", "/v1/models/alias")["id"], "tiny");
  EXPECT_EQ(call("GET", "/v1/models/no/such:model").status, 404);
}

TEST_F(ModelHandlersTest, UnlistedModelsAreServedButNotListed) {
  config.models[0].unlisted = true;
  serving.reply = "x";
  start();
  EXPECT_EQ(ask("GET", "/v1/models")["data"].size(), 1U);
  EXPECT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
}

TEST_F(ModelHandlersTest, ListsWhatTheConfigurationSaysOfThem) {
  config.models[0].capabilities = {
      .in = {"text", "image"}, .out = {"text"}, .tools = true, .context = 4096};
  config.list_aliases = true;
  start();
  const auto list = ask("GET", "/v1/models")["data"];
  ASSERT_EQ(list.size(), 3U);
  for (const auto& model : {list[0], list[1]}) {
    EXPECT_EQ(model["architecture"]["input_modalities"], json({"text", "image"}));
    EXPECT_EQ(model["capabilities"], json({{"vision", true}, {"function_calling", true}}));
    EXPECT_EQ(model["supported_parameters"], json({"tools", "tool_choice"}));
    EXPECT_EQ(model["context_length"], 4096);
  }
  EXPECT_EQ(list[0]["aliases"], json({"alias"}));
  EXPECT_EQ(list[1]["id"], "alias");
  EXPECT_EQ(list[1]["aliases"], json({"tiny"}));
  EXPECT_FALSE(list[2].contains("capabilities"));
  EXPECT_EQ(list[2]["architecture"]["input_modalities"], json({"text"}));
}

TEST_F(ModelHandlersTest, LoadsAndUnloads) {
  start();
  EXPECT_EQ(ask("GET", "/running")["running"].size(), 0U);
  EXPECT_EQ(ask("POST", "/models/load", R"({"model":"alias"})")["success"], true);
  const auto running = ask("GET", "/running")["running"];
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(running[0]["model"], "tiny");
  EXPECT_EQ(running[0]["state"], "ready");
  EXPECT_EQ(running[0]["device"], "cpu0");
  EXPECT_EQ(ask("POST", "/models/unload", R"({"model":"tiny"})")["success"], true);
  EXPECT_EQ(ask("GET", "/running")["running"].size(), 0U);
}

TEST_F(ModelHandlersTest, UnloadsTheWayOfLlamaSwap) {
  serving.residency = {{ModelId(1), core::Residency::kServing},
                       {ModelId(2), core::Residency::kWarm}};
  start();
  EXPECT_EQ(call("POST", "/api/models/unload/org/name:8b").status, 200);
  EXPECT_EQ(ask("GET", "/running")["running"].size(), 1U);
  EXPECT_EQ(call("POST", "/api/models/unload").status, 200);
  EXPECT_EQ(ask("GET", "/running")["running"].size(), 0U);
  on_loop([this] { serving.residency[ModelId(1)] = core::Residency::kServing; });
  EXPECT_EQ(call("POST", "/unload").status, 200);
  EXPECT_EQ(ask("GET", "/running")["running"].size(), 0U);
}

TEST_F(ModelHandlersTest, WhatCannotBeLoadedIsToldWhy) {
  serving.load_failure = Error{.code = Code::kResourceExhausted, .message = "needs 9 pages of 4"};
  start();
  const TestResponse refused = call("POST", "/models/load", R"({"model":"tiny"})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("needs 9 pages of 4"));
  EXPECT_EQ(call("POST", "/models/load", R"({"model":"nobody"})").status, 404);
  EXPECT_EQ(call("POST", "/models/load", "{}").status, 400);
  EXPECT_EQ(call("POST", "/api/models/unload/nobody").status, 404);
}

}  // namespace
}  // namespace heddle::gateway
