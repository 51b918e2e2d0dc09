#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class MessageHandlersTest : public GatewayTest {
 protected:
  [[nodiscard]] static std::string body(const std::string& more = {}) {
    return R"({"model":"tiny","max_tokens":50,"messages":[{"role":"user","content":"hi"}])" +
           (more.empty() ? "" : "," + more) + "}";
  }
  [[nodiscard]] std::string prompt() const {
    std::string text;
    for (const TokenId token : serving.started.at(0)->prompt) {
      text += static_cast<char>(token);
    }
    return text;
  }
};

TEST_F(MessageHandlersTest, AMessageAsAWhole) {
  serving.reply = "yes";
  start();
  const TestResponse response = call("POST", "/v1/messages", body(R"("system":"be brief")"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("request-id"), response.headers.at("x-request-id"));
  const json message = json::parse(response.body);
  EXPECT_THAT(message["id"].get<std::string>(), StartsWith("msg_"));
  EXPECT_EQ(message["content"][0]["text"], "yes");
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_EQ(message["usage"]["output_tokens"], 4) << "three bytes and the end of turn";
  EXPECT_EQ(prompt(), "system: be brief\nuser: hi\n");
}

TEST_F(MessageHandlersTest, AStreamOfNamedEvents) {
  serving.reply = "yes";
  start();
  const TestResponse response = call("POST", "/v1/messages", body(R"("stream":true)"));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  EXPECT_THAT(response.body, StartsWith("event: message_start\ndata: {"));
  EXPECT_THAT(response.body, HasSubstr("event: content_block_delta\n"));
  EXPECT_THAT(response.body,
              testing::EndsWith("event: message_stop\ndata: "
                                "{\"type\":\"message_stop\"}\n\n"));
}

TEST_F(MessageHandlersTest, AStopSequenceIsTold) {
  serving.reply = "one END two";
  start();
  const json message = ask("POST", "/v1/messages", body(R"("stop_sequences":["x","END"])"));
  EXPECT_EQ(message["content"][0]["text"], "one ");
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "END");
}

TEST_F(MessageHandlersTest, TheModelGoesOnFromWhatItSaid) {
  serving.reply = "yes";
  start();
  (void)ask("POST",
            "/v1/messages",
            R"({"model":"tiny","max_tokens":5,"messages":[{"role":"user","content":"hi"},)"
            R"({"role":"assistant","content":"I say"}]})");
  EXPECT_EQ(prompt(), "user: hi\nI say");
}

TEST_F(MessageHandlersTest, ACallOfATool) {
  serving.reply = R"([{"name": "sum", "arguments": {"a": 1}}])";
  start();
  const json message = ask("POST",
                           "/v1/messages",
                           body(R"("tools":[{"name":"sum","input_schema":{"type":"object"}}],)"
                                R"("tool_choice":{"type":"any"})"));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["content"][0]["type"], "tool_use");
  EXPECT_EQ(message["content"][0]["input"], json::parse(R"({"a":1})"));
}

TEST_F(MessageHandlersTest, TokensAreCountedAndNothingRuns) {
  start();
  const json count = ask("POST",
                         "/v1/messages/count_tokens",
                         R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(count["input_tokens"], std::string_view("user: hi\n").size());
  EXPECT_TRUE(serving.started.empty());
}

TEST_F(MessageHandlersTest, ErrorsAreAnthropics) {
  start();
  const TestResponse missing =
      call("POST",
           "/v1/messages",
           R"({"model":"nobody","max_tokens":1,"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(missing.status, 404);
  const json error = json::parse(missing.body);
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], "not_found_error");
  EXPECT_EQ(error["request_id"], missing.headers.at("request-id"));
  EXPECT_EQ(call("POST", "/v1/messages", R"({"model":"tiny"})").status, 400);
}

TEST_F(MessageHandlersTest, AServerThatCannotIsOverloaded) {
  serving.failure = Error{.code = Code::kUnavailable, .message = "weights are gone"};
  start();
  const TestResponse response = call("POST", "/v1/messages", body(R"("stream":true)"));
  EXPECT_EQ(response.status, 529);
  EXPECT_EQ(json::parse(response.body)["error"]["type"], "overloaded_error");
}

TEST_F(MessageHandlersTest, ModelsAreListedAsTheClientKnowsThem) {
  start();
  const TestResponse listed =
      call("GET", "/v1/models?limit=1", {}, "anthropic-version: 2023-06-01\r\n");
  const json list = json::parse(listed.body);
  EXPECT_EQ(list["data"].size(), 1U);
  EXPECT_EQ(list["data"][0]["display_name"], "Tiny");
  EXPECT_EQ(list["has_more"], true);
  const TestResponse one = call("GET", "/v1/models/tiny", {}, "anthropic-version: 2023-06-01\r\n");
  EXPECT_EQ(json::parse(one.body)["type"], "model");
  EXPECT_EQ(ask("GET", "/v1/models")["object"], "list");
}

TEST_F(MessageHandlersTest, AKeyIsAskedFor) {
  config.api_keys = {{.key = "sesame", .role = config::Role::kInference}};
  serving.reply = "yes";
  start();
  const TestResponse none = call("POST", "/v1/messages", body());
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(json::parse(none.body)["error"]["type"], "authentication_error");
  EXPECT_EQ(call("POST", "/v1/messages", body(), "x-api-key: sesame\r\n").status, 200);
}

}  // namespace
}  // namespace heddle::gateway
