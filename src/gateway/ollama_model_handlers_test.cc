#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

using OllamaModelHandlersTest = GatewayTest;

TEST_F(OllamaModelHandlersTest, ModelsAreListedWithTags) {
  start();
  const json models = ask("GET", "/api/tags")["models"];
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0]["name"], "tiny:latest");
  EXPECT_EQ(models[1]["name"], "org/name:8b");
  EXPECT_EQ(models[0]["digest"].get<std::string>().size(), 64U);
  EXPECT_NE(models[0]["digest"], models[1]["digest"]);
  EXPECT_EQ(models[0]["details"]["format"], "safetensors");
}

TEST_F(OllamaModelHandlersTest, ThoseInMemoryAreListed) {
  config.models[1].ttl = std::chrono::hours(24 * 365);
  serving.residency = {{ModelId(2), core::Residency::kServing}};
  start();
  const json models = ask("GET", "/api/ps")["models"];
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0]["model"], "org/name:8b");
  EXPECT_EQ(models[0]["size_vram"], 1000) << "the device here is known as a GPU's is";
  EXPECT_THAT(models[0]["expires_at"].get<std::string>(), EndsWith("Z"));
}

TEST_F(OllamaModelHandlersTest, AModelThatStaysExpiresAtTheEndOfTime) {
  serving.residency = {{ModelId(1), core::Residency::kServing}};
  start();
  EXPECT_THAT(ask("GET", "/api/ps")["models"][0]["expires_at"].get<std::string>(),
              HasSubstr("2262-"));
}

TEST_F(OllamaModelHandlersTest, AModelIsShown) {
  config.models[0].tool_parser = config::ToolParser::kHermes;
  config.models[0].reasoning_parser = config::ReasoningParser::kThink;
  start();
  const json shown = ask("POST", "/api/show", R"({"model":"tiny"})");
  EXPECT_EQ(shown["capabilities"], json::parse(R"(["completion","tools","thinking"])"));
  EXPECT_EQ(shown["model_info"]["general.architecture"], "llama");
  EXPECT_EQ(shown["model_info"]["llama.context_length"], 200000);
  EXPECT_EQ(shown["model_info"]["llama.embedding_length"], 32);
  EXPECT_EQ(ask("POST", "/api/show", R"({"name":"org/name:8b"})")["capabilities"],
            json::parse(R"(["completion"])"));
  EXPECT_EQ(call("POST", "/api/show", R"({"model":"nobody"})").status, 404);
}

TEST_F(OllamaModelHandlersTest, APullLoadsWhatIsConfigured) {
  start();
  const TestResponse pulled = call("POST", "/api/pull", R"({"model":"tiny"})");
  EXPECT_EQ(pulled.headers.at("content-type"), "application/x-ndjson");
  EXPECT_THAT(pulled.body, testing::StartsWith("{\"status\":\"pulling manifest\"}\n"));
  EXPECT_THAT(pulled.body, EndsWith("{\"status\":\"success\"}\n"));
  EXPECT_TRUE(serving.loaded.contains(ModelId(1)));
  EXPECT_EQ(ask("POST", "/api/pull", R"({"name":"tiny","stream":false})")["status"], "success");
  const TestResponse unknown = call("POST", "/api/pull", R"({"model":"llama3.2"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(json::parse(unknown.body)["error"].get<std::string>(), HasSubstr("configuration"));
}

TEST_F(OllamaModelHandlersTest, TheStoreOfModelsIsNotOffered) {
  start();
  for (const char* path : {"/api/create", "/api/copy", "/api/push", "/api/blobs/sha256:1"}) {
    const TestResponse refused = call("POST", path, "{}");
    EXPECT_EQ(refused.status, 501) << path;
    EXPECT_TRUE(json::parse(refused.body)["error"].is_string());
  }
  EXPECT_EQ(call("DELETE", "/api/delete", R"({"model":"tiny"})").status, 501);
}

TEST_F(OllamaModelHandlersTest, PullingIsForAdministrators) {
  config.api_keys = {{.key = "ask", .role = config::Role::kInference}};
  start();
  const std::string key = "Authorization: Bearer ask\r\n";
  EXPECT_EQ(call("POST", "/api/pull", R"({"model":"tiny"})", key).status, 403);
  EXPECT_EQ(call("GET", "/api/tags", {}, key).status, 200);
}

TEST_F(OllamaModelHandlersTest, ClientsFindTheServer) {
  start();
  EXPECT_EQ(call("HEAD", "/").status, 200);
  EXPECT_THAT(call("GET", "/").body, HasSubstr("is running"));
  EXPECT_EQ(ask("GET", "/api/version")["version"], "1.2.3");
}

}  // namespace
}  // namespace heddle::gateway
