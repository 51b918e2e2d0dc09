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

/// The text that the model was asked, of the request of this number.
std::string prompt_of(const FakeServing& serving, std::size_t number) {
  std::string prompt;
  for (const TokenId token : serving.started.at(number)->prompt) {
    prompt += static_cast<char>(token);
  }
  return prompt;
}

TEST_F(ResponseHandlersTest, OneThatIsKeptCanBeSeenContinuedAndForgotten) {
  serving.reply = "yes";
  start();
  const json first =
      ask("POST", "/v1/responses", R"({"model":"tiny","instructions":"be brief","input":[
          {"role":"developer","content":"rule"},{"role":"user","content":"hi"}],"store":true})");
  const std::string id = first["id"];
  EXPECT_EQ(first["store"], true);
  EXPECT_EQ(ask("GET", "/v1/responses/" + id), first);
  const TestResponse stream = call("POST",
                                   "/v1/responses",
                                   R"({"model":"tiny","input":"and?","stream":true,"store":true,)"
                                   R"("instructions":"be long","previous_response_id":")" +
                                       id + "\"}");
  EXPECT_EQ(prompt_of(serving, 1),
            "system: be long\n\nrule\nuser: hi\nassistant: yes\nuser: and?\n")
      << "the earlier instructions hold no longer";
  const std::size_t at = stream.body.find("resp_");
  const std::string second = stream.body.substr(at, stream.body.find('"', at) - at);
  EXPECT_EQ(ask("GET", "/v1/responses/" + second)["previous_response_id"], id);
  EXPECT_EQ(ask("DELETE", "/v1/responses/" + id)["deleted"], true);
  EXPECT_EQ(call("GET", "/v1/responses/" + id).status, 404);
  (void)ask("POST",
            "/v1/responses",
            R"({"model":"tiny","input":"go","previous_response_id":")" + second + "\"}");
  EXPECT_EQ(prompt_of(serving, 2),
            "system: rule\nuser: hi\nassistant: yes\nuser: and?\nassistant: yes\nuser: go\n")
      << "what a response continued stays with it";
}

TEST_F(ResponseHandlersTest, OnesOfAnotherKeyAreUnknown) {
  config.api_keys = {{.key = "one"}, {.key = "two"}};
  start();
  const auto as = [this](const char* key, const std::string& method, const std::string& path) {
    return call(method,
                path,
                method == "POST" ? R"({"model":"tiny","input":"hi","store":true})" : "",
                "Authorization: Bearer " + std::string(key) + "\r\n");
  };
  const std::string id = json::parse(as("one", "POST", "/v1/responses").body)["id"];
  EXPECT_EQ(as("one", "GET", "/v1/responses/" + id).status, 200);
  EXPECT_EQ(as("two", "GET", "/v1/responses/" + id).status, 404);
  EXPECT_EQ(as("two", "DELETE", "/v1/responses/" + id).status, 404);
}

TEST_F(ResponseHandlersTest, WhatWasLeftOutIsTold) {
  start();
  const TestResponse response =
      call("POST",
           "/v1/responses",
           "{\"model\":\"tiny\",\"input\":\"hi\",\"tools\":[{\"type\":\"web_search\"}],"
           "\"n\\u0000\\n\\u00fc\":1}");
  EXPECT_EQ(json::parse(response.body)["warnings"].size(), 2U);
  EXPECT_THAT(response.headers.at("x-heddle-warnings"), HasSubstr("tools[0]"));
  EXPECT_THAT(response.headers.at("x-heddle-warnings"), HasSubstr("n????: is not a field"))
      << "a header of one line";
}

TEST_F(ResponseHandlersTest, WhatIsNotKeptIsUnknown) {
  start();
  const TestResponse lost = call(
      "POST", "/v1/responses", R"({"model":"tiny","input":"a","previous_response_id":"resp_1"})");
  EXPECT_EQ(lost.status, 404);
  EXPECT_EQ(json::parse(lost.body)["error"]["code"], "previous_response_not_found");
  EXPECT_THAT(json::parse(lost.body)["error"]["message"], HasSubstr("store"));
  const std::string silent = ask("POST", "/v1/responses", R"({"model":"tiny","input":"hi"})")["id"];
  EXPECT_EQ(call("GET", "/v1/responses/" + silent).status, 404) << "nobody asked to keep it";
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
