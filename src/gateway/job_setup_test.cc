#include "gateway/job_setup.h"

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

const std::string kSumTool =
    R"("tools":[{"type":"function","function":{"name":"sum","parameters":{"type":"object"}}}])";

class JobSetupTest : public GatewayTest {
 protected:
  json error(const std::string& path, const std::string& body, int status) {
    const TestResponse response = call("POST", path, body);
    EXPECT_EQ(response.status, status) << body << "\n" << response.body;
    return json::parse(response.body)["error"];
  }
};

TEST_F(JobSetupTest, AModelThatIsReplacedWhileAPromptIsReadIsAskedByItsNewId) {
  std::atomic<bool> holds = false;
  std::binary_semaphore reads{0};
  std::binary_semaphore replaced{0};
  options.open_text = [&](const config::ModelConfig& wanted) {
    if (holds.exchange(false)) {
      reads.release();
      replaced.acquire();
    }
    return open_model_text(wanted.path, wanted.context);
  };
  serving.reply = "x";
  start();
  const std::string prompt = R"({"model":"org/name:8b","prompt":"a"})";
  const std::string input = R"({"model":"tiny","input":"a"})";
  for (const auto& [path, body, name] : {std::tuple("/v1/chat/completions", chat_body(), "tiny"),
                                         {"/v1/completions", prompt, "org/name:8b"},
                                         {"/v1/embeddings", input, "tiny"}}) {
    holds = true;
    TestClient client(port);
    client.send(TestClient::request("POST", path, body));
    reads.acquire();
    on_loop([this] {
      serving.names.insert(serving.names.begin(), "gone");
      gateway->reload(config);
    });
    replaced.release();
    EXPECT_EQ(client.read().status, 200) << path;
    const auto now = std::ranges::find(serving.names, name) - serving.names.begin() + 1;
    EXPECT_TRUE(std::cmp_equal(serving.started.back()->model.value(), now)) << path;
  }
}

TEST_F(JobSetupTest, PromptLogprobsAreToldAsVllmTellsThem) {
  serving.reply = "x";
  start();
  const json chat = ask("POST", "/v1/chat/completions", chat_body(R"("prompt_logprobs":1,"n":2)"));
  const json& told = chat["prompt_logprobs"];
  ASSERT_EQ(told.size(), chat["usage"]["prompt_tokens"].get<std::size_t>());
  EXPECT_TRUE(told[0].is_null());
  EXPECT_FALSE(chat["choices"][0].contains("prompt_logprobs"));
  EXPECT_EQ(serving.started.at(0)->choices[0].prompt_logprobs, 1);

  const json answer =
      ask("POST",
          "/v1/completions",
          R"({"model":"tiny","prompt":["abz"],"prompt_logprobs":1,"max_tokens":1})");
  const json likeliest = {{"logprob", -0.125}, {"rank", 1}, {"decoded_token", "z"}};
  EXPECT_EQ(answer["choices"][0]["prompt_logprobs"],
            json::array({nullptr,
                         {{"98", {{"logprob", -0.25}, {"rank", nullptr}, {"decoded_token", "b"}}},
                          {"122", likeliest}},
                         {{"122", {{"logprob", -0.25}, {"rank", 1}, {"decoded_token", "z"}}}}}));
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());

  const json own = ask("POST",
                       "/v1/completions",
                       R"({"model":"tiny","prompt":"ab","prompt_logprobs":0,"echo":true,)"
                       R"("logprobs":1,"max_tokens":1})");
  EXPECT_EQ(own["choices"][0]["prompt_logprobs"][1].size(), 1U);
  EXPECT_EQ(own["choices"][0]["logprobs"]["top_logprobs"][1], json({{"z", -0.125}}));
  EXPECT_FALSE(ask("POST", "/v1/chat/completions", chat_body()).contains("prompt_logprobs"));

  EXPECT_EQ(
      error(
          "/v1/chat/completions", chat_body(R"("prompt_logprobs":1,"stream":true)"), 400)["param"],
      "prompt_logprobs");
  EXPECT_EQ(error("/v1/chat/completions", chat_body(R"("prompt_logprobs":21)"), 400)["param"],
            "prompt_logprobs");
  EXPECT_EQ(
      error("/v1/responses", R"({"model":"tiny","input":"a","prompt_logprobs":1})", 400)["param"],
      "prompt_logprobs");
}

TEST_F(JobSetupTest, BansStandBesideAFormatOfTheAnswer) {
  serving.reply = "{}";
  start();
  const json answer = ask("POST",
                          "/v1/chat/completions",
                          chat_body(R"("min_tokens":2,"bad_words":["x"],)"
                                    R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "{}");
  const spec::SamplingParams& asked = serving.started.at(0)->choices[0];
  EXPECT_TRUE(asked.grammar.constrains());
  EXPECT_EQ(asked.min_tokens, 2);
  EXPECT_FALSE(asked.bad_words.empty());
}

TEST_F(JobSetupTest, WhatRunningRequestsMayUseIsSetAsideOfTheirKeysQuota) {
  config.api_keys = {{.key = "one", .tokens_per_minute = 1000}};
  serving.reply = std::nullopt;  // Requests wait.
  start();
  const std::string as_one = "Authorization: Bearer one\r\n";
  const std::string path = "/v1/chat/completions";
  TestClient first(port);
  first.send(TestClient::request("POST", path, chat_body(R"("max_tokens":40)"), as_one));
  ASSERT_TRUE(serving.wait([this] { return serving.started.size() == 1; }));
  TestClient second(port);
  second.send(TestClient::request("POST", path, chat_body(R"("max_tokens":20)"), as_one));
  ASSERT_TRUE(serving.wait([this] { return serving.started.size() == 2; }));
  const TestResponse refused = call("POST", path, chat_body(R"("max_tokens":1000)"), as_one);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "rate_limit_exceeded");
}

TEST_F(JobSetupTest, ACallIsStreamedBeforeItIsWhole) {
  config.models[0].tool_parser = config::ToolParser::kHermes;
  serving.reply = std::nullopt;
  start();
  TestClient client(port);
  client.send(TestClient::request(
      "POST", "/v1/chat/completions", chat_body(kSumTool + R"(,"stream":true)")));
  ASSERT_TRUE(serving.wait([this] { return serving.started.size() == 1; }));
  on_loop([this] {
    std::vector<TokenId> tokens;
    for (const char c : std::string(R"(<tool_call>{"name": "sum", "arguments": {"text": "one)")) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
    serving.emit(serving.started.at(0)->id, 0, tokens);
  });
  (void)client.read_head();
  std::string seen;
  while (seen.find("one") == std::string::npos) {
    const std::string chunk = client.read_chunk();
    ASSERT_FALSE(chunk.empty()) << seen;
    seen += chunk;
  }
  std::string arguments;
  for (const std::string& event : events_of(seen)) {
    const json delta = json::parse(event)["choices"][0]["delta"];
    for (const json& piece : delta.value("tool_calls", json::array())) {
      EXPECT_EQ(piece["index"], 0);
      EXPECT_EQ(piece["function"].contains("name"), arguments.empty());
      arguments += piece["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(arguments, R"({"text":"one)");
}

}  // namespace
}  // namespace heddle::gateway
