#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class OllamaHandlersTest : public GatewayTest {
 protected:
  /// The objects of a stream, one a line.
  static std::vector<json> lines_of(const std::string& stream) {
    std::vector<json> lines;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t end = stream.find('\n', at);
      lines.push_back(json::parse(stream.substr(at, end - at)));
      at = end + 1;
    }
    return lines;
  }
  [[nodiscard]] std::string prompt() const {
    std::string text;
    for (const TokenId token : serving.started.at(0)->prompt) {
      text += static_cast<char>(token);
    }
    return text;
  }
};

TEST_F(OllamaHandlersTest, AChatIsAStreamUnlessItIsToldOtherwise) {
  serving.reply = "yes";
  start();
  const std::string body = R"({"model":"tiny:latest","messages":[{"role":"user","content":"hi"}])";
  const TestResponse response = call("POST", "/api/chat", body + "}");
  EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
  std::string text;
  const std::vector<json> lines = lines_of(response.body);
  for (const json& line : lines) {
    text += line["message"]["content"].get<std::string>();
    EXPECT_EQ(line["model"], "tiny:latest");
  }
  EXPECT_EQ(text, "yes");
  EXPECT_EQ(lines.back()["done_reason"], "stop");
  EXPECT_EQ(lines.back()["eval_count"], 4);
  EXPECT_EQ(lines.back()["prompt_eval_count"], std::string_view("user: hi\n").size());
  EXPECT_GT(lines.back()["total_duration"], 0);
  const json whole = ask("POST", "/api/chat", body + R"(,"stream":false})");
  EXPECT_EQ(whole["message"]["content"], "yes");
  EXPECT_EQ(whole["done"], true);
}

TEST_F(OllamaHandlersTest, APromptIsAnswered) {
  serving.reply = "yes";
  start();
  const json answer = ask("POST",
                          "/api/generate",
                          R"({"model":"tiny","prompt":"hi","system":"be brief","stream":false,)"
                          R"("options":{"temperature":0,"num_predict":9}})");
  EXPECT_EQ(answer["response"], "yes");
  EXPECT_EQ(prompt(), "system: be brief\nuser: hi\n");
  EXPECT_EQ(serving.started.at(0)->choices.at(0).max_tokens, 9);
}

TEST_F(OllamaHandlersTest, ARawPromptGoesAroundTheTemplate) {
  serving.reply = "yes";
  start();
  const TestResponse stream = call("POST",
                                   "/api/generate",
                                   R"({"model":"tiny","prompt":"a<SUF>b","raw":true,)"
                                   R"("options":{"num_predict":9,"stop":["s"]}})");
  EXPECT_EQ(prompt(), "a<SUF>b");
  const std::vector<json> lines = lines_of(stream.body);
  std::string text;
  for (const json& line : lines) {
    text += line["response"].get<std::string>();
  }
  EXPECT_EQ(text, "ye");
  EXPECT_EQ(lines.back()["done_reason"], "stop");
}

TEST_F(OllamaHandlersTest, ACallOfATool) {
  serving.reply = R"(<tool_call>{"name": "sum", "arguments": {"a": 1}}</tool_call>)";
  config.models[0].tool_parser = config::ToolParser::kHermes;
  start();
  const json answer = ask("POST",
                          "/api/chat",
                          R"({"model":"tiny","stream":false,)"
                          R"("messages":[{"role":"user","content":"hi"}],)"
                          R"("tools":[{"type":"function","function":{"name":"sum"}}]})");
  EXPECT_EQ(answer["message"]["tool_calls"][0]["function"]["name"], "sum");
  EXPECT_EQ(answer["message"]["tool_calls"][0]["function"]["arguments"]["a"], 1);
}

TEST_F(OllamaHandlersTest, WhoAsksNothingLoadsOrUnloads) {
  start();
  const json loaded = ask("POST", "/api/generate", R"({"model":"tiny","keep_alive":"10m"})");
  EXPECT_EQ(loaded["done_reason"], "load");
  EXPECT_EQ(loaded["response"], "");
  EXPECT_TRUE(serving.loaded.contains(ModelId(1)));
  const json unloaded =
      ask("POST", "/api/chat", R"({"model":"tiny","messages":[],"keep_alive":0})");
  EXPECT_EQ(unloaded["done_reason"], "unload");
  EXPECT_TRUE(serving.unloaded.contains(ModelId(1)));
  EXPECT_TRUE(serving.started.empty());
  EXPECT_EQ(call("POST", "/api/chat", R"({"model":"nobody"})").status, 404);
}

TEST_F(OllamaHandlersTest, UnloadingIsForAdministrators) {
  config.api_keys = {{.key = "ask", .role = config::Role::kInference},
                     {.key = "root", .role = config::Role::kAdmin}};
  start();
  const auto unload = [this](const std::string& key) {
    return call("POST",
                "/api/generate",
                R"({"model":"tiny","keep_alive":0})",
                "Authorization: Bearer " + key + "\r\n");
  };
  const TestResponse refused = unload("ask");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(json::parse(refused.body)["error"].get<std::string>(), HasSubstr("admin"));
  EXPECT_TRUE(serving.unloaded.empty());
  EXPECT_EQ(unload("root").status, 200);
}

TEST_F(OllamaHandlersTest, TextsBecomeVectors) {
  start();
  const json many = ask("POST", "/api/embed", R"({"model":"tiny","input":["ab","abcd"]})");
  EXPECT_EQ(many["embeddings"].size(), 2U);
  EXPECT_EQ(many["embeddings"][0].size(), 3U);
  EXPECT_EQ(many["prompt_eval_count"], 6);
  const json one = ask("POST", "/api/embeddings", R"({"model":"tiny","prompt":"ab"})");
  EXPECT_EQ(one["embedding"], many["embeddings"][0]);
}

TEST_F(OllamaHandlersTest, ErrorsAreMessages) {
  start();
  const TestResponse missing = call(
      "POST", "/api/chat", R"({"model":"nobody","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(json::parse(missing.body)["error"].get<std::string>(), HasSubstr("nobody"));
  EXPECT_EQ(call("POST", "/api/generate", R"({"model":"tiny","prompt":"x","suffix":"y"})").status,
            400);
}

TEST_F(OllamaHandlersTest, AStreamFailsInALine) {
  serving.reply = "yes";
  serving.failure = Error{.code = Code::kUnavailable, .message = "weights are gone"};
  start();
  const TestResponse response = call("POST", "/api/generate", R"({"model":"tiny","prompt":"hi"})");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(json::parse(response.body)["error"], "weights are gone");
}

}  // namespace
}  // namespace heddle::gateway
