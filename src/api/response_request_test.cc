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

TEST(ResponseRequest, WhatIsOnlyRepeatedIsBounded) {
  const std::string large(70'000, 'x');
  for (const std::string key : {"metadata", "user", "prompt_cache_key", "safety_identifier"}) {
    const std::string value = key == "metadata" ? R"({"a":")" + large + "\"}" : '"' + large + '"';
    EXPECT_EQ(refused(",\"" + key + "\":" + value).param, key);
  }
  EXPECT_EQ(read(R"(,"user":"me","metadata":{"a":"b"})").chat.model, "m");
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

TEST(ResponseRequest, MayBeKeptAndContinueAnEarlierOne) {
  const ResponseRequest request = read(R"(,"store":true,"previous_response_id":"resp_1")");
  EXPECT_TRUE(request.store);
  EXPECT_EQ(request.previous, "resp_1");
  const json told = json::parse("{" + request.settings + "}");
  EXPECT_EQ(told["store"], true);
  EXPECT_EQ(told["previous_response_id"], "resp_1");
  EXPECT_FALSE(told.contains("warnings"));
}

TEST(ResponseRequest, WhatHarmsNobodyIsLeftOutAndTold) {
  const ResponseRequest request =
      read(R"(,"truncation":"auto","tools":[{"type":"web_search"}],"temprature":1)");
  EXPECT_TRUE(request.chat.tools.list.empty());
  const json told = json::parse("{" + request.settings + "}");
  EXPECT_EQ(told["truncation"], "disabled") << "what was done, not what was asked";
  EXPECT_EQ(told["tools"], json::parse(R"([{"type":"web_search"}])"));
  ASSERT_EQ(told["warnings"].size(), 3U);
  EXPECT_EQ(told["warnings"][0],
            "truncation: is \"auto\"; a conversation that is too long is refused, not shortened");
  EXPECT_EQ(told["warnings"][1],
            "tools[0]: tools of the type \"web_search\" do not exist here, and it was left out");
  EXPECT_EQ(told["warnings"][2],
            "temprature: is not a field of this endpoint, and was ignored; did you mean "
            "\"temperature\"?");
  EXPECT_EQ(refused(R"(,"tools":[{"type":"web_search"}],"tool_choice":"required")").param,
            "tool_choice");
}

/// As Codex sends them (codex-rs, `ResponsesApiRequest`).
TEST(ResponseRequest, OfCodex) {
  auto parsed = parse_response_request(R"({"model":"m","instructions":"You are Codex.","input":[
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"sandbox"}]},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":null,
       "encrypted_content":"gAAA"},
      {"type":"custom_tool_call","status":"completed","call_id":"c1","name":"apply_patch",
       "input":"*** Begin Patch"},
      {"type":"custom_tool_call_output","call_id":"c1","output":"ok"},
      {"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}","call_id":"c2"},
      {"type":"function_call_output","call_id":"c2","output":"README"}],
    "tools":[
      {"type":"function","name":"exec_command","description":"Runs.","strict":false,"parameters":
       {"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"],
        "additionalProperties":false}},
      {"type":"custom","name":"apply_patch","description":"Edits files.","format":
       {"type":"grammar","syntax":"lark","definition":"start: begin_patch hunk+ end_patch"}},
      {"type":"web_search","external_web_access":false}],
    "tool_choice":"auto","parallel_tool_calls":false,
    "reasoning":{"effort":"medium","summary":"auto"},"store":false,"stream":true,
    "include":["reasoning.encrypted_content"],"prompt_cache_key":"0199","text":{"verbosity":"low"},
    "client_metadata":{"x-codex-installation-id":"1"}})");
  ASSERT_TRUE(std::holds_alternative<ResponseRequest>(parsed))
      << std::get<ApiError>(parsed).message;
  const ResponseRequest& request = std::get<ResponseRequest>(parsed);
  const json messages = json::parse(request.chat.messages.json);
  EXPECT_EQ(messages[0]["content"], "You are Codex.\n\nsandbox");
  ASSERT_EQ(messages.size(), 6U);
  EXPECT_EQ(messages[4]["tool_calls"][0]["function"]["name"], "exec_command");
  const json tools = json::parse(request.chat.tools.json);
  ASSERT_EQ(tools.size(), 2U);
  EXPECT_EQ(tools[1]["function"]["parameters"]["required"], json({"input"}));
  EXPECT_NE(tools[1]["function"]["description"].get<std::string>().find("begin_patch"),
            std::string::npos);
  EXPECT_EQ(request.custom_tools, std::vector<std::string>{"apply_patch"});
  EXPECT_EQ(request.chat.params.warnings.size(), 2U) << "the search and the unenforced grammar";
}

/// As the Agents SDK sends them (openai-agents, `OpenAIResponsesModel`).
TEST(ResponseRequest, OfAnAgent) {
  const ResponseRequest request =
      read(R"(,"previous_response_id":"resp_1","instructions":"Help.","store":true,
              "truncation":"auto","parallel_tool_calls":true,"max_output_tokens":100,
              "metadata":{"trace":"t"},"include":[],"tools":[
                {"type":"function","name":"sum","description":"Adds.","strict":true,
                 "parameters":{"type":"object","properties":{},"required":[],
                               "additionalProperties":false}},
                {"type":"file_search","vector_store_ids":["vs_1"]}],
              "tool_choice":"auto","reasoning":{"effort":"low","summary":"auto"})");
  EXPECT_EQ(request.chat.tools.list.size(), 1U);
  EXPECT_EQ(request.chat.params.warnings.size(), 2U);
}

TEST(ResponseRequest, WhatCannotBeDoneIsRefused) {
  EXPECT_EQ(refused(R"(,"conversation":{"id":"c"})").param, "conversation");
  EXPECT_EQ(refused(R"(,"background":true)").param, "background");
  EXPECT_EQ(refused(R"(,"n":2)").param, "n");
  EXPECT_EQ(refused(R"(,"text":{"format":{"type":"json_object"}},"guided_regex":"a")").param,
            "text.format");
}

}  // namespace
}  // namespace heddle::api
