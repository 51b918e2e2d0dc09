#include "api/response_request.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

ResponseRequest read(const std::string& more) {
  auto parsed = parse_response_request(R"({"model":"m","input":"hi")" + more + "}");
  const auto* wrong = std::get_if<ApiError>(&parsed);
  EXPECT_EQ(wrong, nullptr) << wrong->message;
  return wrong == nullptr ? std::get<0>(std::move(parsed)) : ResponseRequest{};
}

ApiError refused(const std::string& more) {
  auto parsed = parse_response_request(R"({"model":"m","input":"hi")" + more + "}");
  const auto* wrong = std::get_if<ApiError>(&parsed);
  EXPECT_NE(wrong, nullptr) << more;
  return wrong == nullptr ? ApiError{} : *wrong;
}

TEST(ResponseRequest, BecomesAChat) {
  const ResponseRequest request =
      read(R"(,"max_output_tokens":9,"temperature":0.5,"stream":true,"top_k":4,
              "reasoning":{"effort":"low"},"store":false,
              "text":{"format":{"type":"json_object"}})");
  EXPECT_EQ(request.chat.model, "m");
  EXPECT_EQ(request.chat.messages.json, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.chat.params.max_tokens, 9);
  EXPECT_EQ(request.chat.params.numbers[&spec::SamplingParams::temperature], 0.5);
  EXPECT_EQ(request.chat.params.top_k, 4);
  EXPECT_TRUE(request.chat.params.stream);
  EXPECT_TRUE(request.chat.params.grammar.constrains());
  EXPECT_EQ(request.chat.template_variables, R"({"reasoning_effort":"low"})");
  EXPECT_FALSE(request.chat.params.logprobs);
}

TEST(ResponseRequest, TheResponseRepeatsIt) {
  const json silent = json::parse("{" + read("").settings + "}");
  EXPECT_EQ(silent["tools"], json::array());
  EXPECT_EQ(silent["tool_choice"], "auto");
  EXPECT_EQ(silent["parallel_tool_calls"], true);
  EXPECT_EQ(silent["store"], false);
  EXPECT_TRUE(silent["max_output_tokens"].is_null());
  EXPECT_EQ(silent["text"]["format"]["type"], "text");
  EXPECT_EQ(silent["service_tier"], "default");
  EXPECT_TRUE(silent["reasoning"]["summary"].is_null());
  for (const char* key : {"max_tool_calls", "prompt_cache_key", "safety_identifier"}) {
    EXPECT_TRUE(silent.at(key).is_null()) << key;
  }
  const json told = json::parse(
      "{" + read(R"(,"instructions":"be \"brief\"","metadata":{"a":"b"})").settings + "}");
  EXPECT_EQ(told["instructions"], "be \"brief\"");
  EXPECT_EQ(told["metadata"]["a"], "b");
}

TEST(ResponseRequest, ObjectsAreRepeatedWithTheMembersThatTheyLack) {
  const json told =
      json::parse("{" +
                  read(R"(,"reasoning":{"effort":"low"},"text":{"verbosity":"low","format":
                      {"type":"json_schema","name":"n","schema":{"type":"object"}}},
                    "tools":[{"type":"function","name":"f","strict":true}])")
                      .settings +
                  "}");
  EXPECT_EQ(told["reasoning"], json({{"effort", "low"}, {"summary", nullptr}}));
  EXPECT_EQ(told["text"]["verbosity"], "low");
  EXPECT_EQ(told["text"]["format"]["strict"], true);
  EXPECT_TRUE(told["text"]["format"].at("description").is_null());
  EXPECT_EQ(told["tools"][0]["strict"], true);
  EXPECT_TRUE(told["tools"][0].at("description").is_null());
  EXPECT_EQ(json::parse("{" + read(R"(,"text":{"verbosity":"low"})").settings + "}")["text"],
            json({{"verbosity", "low"}, {"format", {{"type", "text"}}}}));
}

TEST(ResponseRequest, ToolsAreThoseOfAChat) {
  const ResponseRequest request =
      read(R"(,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],
              "tool_choice":{"type":"function","name":"f"})");
  EXPECT_EQ(json::parse(request.chat.tools.json)[0]["function"]["name"], "f");
  EXPECT_EQ(request.chat.tools.choice, ToolChoice::kNamed);
}

TEST(ResponseRequest, LogprobsComeWhenTheyAreIncluded) {
  EXPECT_EQ(read(R"(,"include":["message.output_text.logprobs"])").chat.params.logprobs, 0);
  EXPECT_EQ(read(R"(,"top_logprobs":3)").chat.params.logprobs, 3);
  EXPECT_FALSE(read(R"(,"include":["reasoning.encrypted_content"])").chat.params.logprobs);
}

TEST(ResponseRequest, WhatNeedsEarlierOnesIsRefused) {
  EXPECT_EQ(refused(R"(,"store":true)").param, "store");
  EXPECT_EQ(refused(R"(,"store":true)").code, "not_supported");
  EXPECT_EQ(refused(R"(,"previous_response_id":"resp_1")").param, "previous_response_id");
  EXPECT_EQ(refused(R"(,"conversation":{"id":"c"})").param, "conversation");
  EXPECT_EQ(refused(R"(,"background":true)").param, "background");
  EXPECT_EQ(refused(R"(,"truncation":"auto")").param, "truncation");
  EXPECT_EQ(refused(R"(,"n":2)").param, "n");
  EXPECT_EQ(refused(R"(,"tools":[{"type":"web_search"}])").param, "tools[0]");
  EXPECT_EQ(refused(R"(,"text":{"format":{"type":"json_object"}},"guided_regex":"a")").param,
            "text.format");
}

}  // namespace
}  // namespace heddle::api
