#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

using ResponseHandlersTest = GatewayTest;

TEST_F(ResponseHandlersTest, AResponseAsAWhole) {
  serving.reply = "yes";
  start();
  const json response =
      ask("POST", "/v1/responses", R"({"model":"tiny","instructions":"be brief","input":"hi"})");
  EXPECT_THAT(response["id"].get<std::string>(), StartsWith("resp_"));
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "yes");
  EXPECT_EQ(response["instructions"], "be brief");
  EXPECT_EQ(response["usage"]["output_tokens"], 4) << "three bytes and the end of turn";
  EXPECT_EQ(response["temperature"], 1) << "as used, where nobody says another";
  EXPECT_GE(response["completed_at"], response["created_at"]);
  std::string prompt;
  for (const TokenId token : serving.started.at(0)->prompt) {
    prompt += static_cast<char>(token);
  }
  EXPECT_EQ(prompt, "system: be brief\nuser: hi\n");
}

TEST_F(ResponseHandlersTest, AStreamOfNamedEvents) {
  serving.reply = "yes";
  start();
  const TestResponse response =
      call("POST", "/v1/responses", R"({"model":"tiny","input":"hi","stream":true})");
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  EXPECT_THAT(response.body, StartsWith("event: response.created\ndata: {"));
  EXPECT_THAT(response.body, HasSubstr("event: response.output_text.delta\n"));
  EXPECT_THAT(response.body, HasSubstr("event: response.completed\n"));
  EXPECT_THAT(response.body, testing::Not(HasSubstr("[DONE]")));
}

TEST_F(ResponseHandlersTest, ThoughtsAreCounted) {
  config.models[0].reasoning_parser = config::ReasoningParser::kThink;
  serving.reply = "<think>hm</think>yes";
  start();
  const json response = ask("POST", "/v1/responses", R"({"model":"tiny","input":"hi"})");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "yes");
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 11)
      << "the last byte of the opening marker, two of thought, eight of the closing marker";
}

TEST_F(ResponseHandlersTest, NothingIsKept) {
  start();
  const TestResponse kept =
      call("POST", "/v1/responses", R"({"model":"tiny","input":"hi","store":true})");
  EXPECT_EQ(kept.status, 400);
  EXPECT_EQ(json::parse(kept.body)["error"]["param"], "store");
  for (const std::string method : {"GET", "DELETE"}) {
    const TestResponse unknown = call(method, "/v1/responses/resp_1");
    EXPECT_EQ(unknown.status, 404);
    const json error = json::parse(unknown.body)["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["code"], "response_not_found");
    EXPECT_THAT(error["message"], HasSubstr("resp_1"));
  }
  for (const std::string path : {"compact", "resp_1/cancel"}) {
    const TestResponse nothing = call("POST", "/v1/responses/" + path, "{}");
    EXPECT_EQ(nothing.status, 404);
    EXPECT_THAT(json::parse(nothing.body)["error"]["message"], HasSubstr(path));
  }
}

TEST_F(ResponseHandlersTest, ARequiredCallOfAModelWithoutAWayToCall) {
  serving.reply = R"([{"name": "sum", "arguments": {"a": 1}}])";
  start();
  const json response = ask("POST",
                            "/v1/responses",
                            R"({"model":"tiny","input":"hi","tool_choice":"required",)"
                            R"("tools":[{"type":"function","name":"sum"}]})");
  EXPECT_EQ(response["output"][0]["type"], "function_call");
  EXPECT_EQ(response["output"][0]["arguments"], R"({"a":1})");
  EXPECT_EQ(response["status"], "completed");
}

TEST_F(ResponseHandlersTest, FailuresHaveTheirStatus) {
  serving.failure = Error{.code = Code::kUnavailable, .message = "weights are gone"};
  start();
  const std::string stream = R"({"model":"tiny","input":"hi","stream":true})";
  EXPECT_EQ(call("POST", "/v1/responses", stream).status, 503);
  EXPECT_EQ(call("POST", "/v1/responses", R"({"model":"nobody","input":"hi"})").status, 404);
}

}  // namespace
}  // namespace heddle::gateway
