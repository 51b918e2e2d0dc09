#include "api/conversation.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

json read(const std::string& text) {
  BodyReader body(text);
  const std::string messages = read_conversation(body).json;
  EXPECT_TRUE(body.ok()) << body.error().message;
  return json::parse(messages);
}

std::string error(const std::string& text) {
  BodyReader body(text);
  (void)read_conversation(body);
  return body.ok() ? "" : body.error().message;
}

TEST(Conversation, ATextIsTheUsersAndInstructionsAreTheSystems) {
  EXPECT_EQ(read(R"({"instructions":"be brief","input":"hi"})"),
            json::parse(R"([{"role":"system","content":"be brief"},
                            {"role":"user","content":"hi"}])"));
}

TEST(Conversation, PartsAreJoinedAndRolesTranslated) {
  EXPECT_EQ(read(R"({"input":[
              {"role":"developer","content":"d"},
              {"type":"message","role":"user","content":[
                {"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
              {"role":"assistant","content":[{"type":"output_text","text":"c"}]},
              {"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]})"),
            json::parse(R"([{"role":"system","content":"d"},{"role":"user","content":"a\nb"},
                            {"role":"assistant","content":"c"},
                            {"role":"assistant","content":"no"}])"));
}

TEST(Conversation, ThoughtTextAndCallsOfATurnAreOneMessage) {
  const json messages = read(R"({"input":[
      {"role":"user","content":"weather?"},
      {"type":"reasoning","id":"rs_1","summary":[],
       "content":[{"type":"reasoning_text","text":"hm"}]},
      {"role":"assistant","content":"Let me see."},
      {"type":"function_call","call_id":"c1","name":"w","arguments":"{\"city\": \"Rome\"}"},
      {"type":"function_call","call_id":"c2","name":"w","arguments":"broken"},
      {"type":"function_call_output","call_id":"c1","output":"sun"},
      {"type":"function_call_output","call_id":"c2",
       "output":[{"type":"input_text","text":"?"}]}]})");
  ASSERT_EQ(messages.size(), 4U);
  const json& turn = messages[1];
  EXPECT_EQ(turn["content"], "Let me see.");
  EXPECT_EQ(turn["reasoning_content"], "hm");
  ASSERT_EQ(turn["tool_calls"].size(), 2U);
  EXPECT_EQ(turn["tool_calls"][0]["function"]["arguments"], json({{"city", "Rome"}}));
  EXPECT_EQ(turn["tool_calls"][1]["function"]["arguments"], "broken");
  EXPECT_EQ(messages[2], json::parse(R"({"role":"tool","tool_call_id":"c1","content":"sun"})"));
  EXPECT_EQ(messages[3]["content"], "?");
}

TEST(Conversation, ATurnOfCallsAloneHasNoText) {
  const json messages = read(R"({"input":[
      {"type":"function_call","call_id":"c1","name":"w","arguments":"{}"},
      {"type":"reasoning","summary":[]},
      {"role":"user","content":"go on"}]})");
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0]["content"], "");
  EXPECT_EQ(messages[0]["tool_calls"].size(), 1U);
}

TEST(Conversation, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(error("{}"), "input: is missing; want a string or a list of items");
  EXPECT_EQ(error(R"({"input":[]})"), "input: is a list of 0; want a string or a list of items");
  EXPECT_EQ(error(R"({"input":[5]})"), "input[0]: is 5; want an object");
  EXPECT_EQ(error(R"({"input":[{"role":"user"}]})"), "input[0].content: is missing; want a string");
  EXPECT_EQ(error(R"({"input":[{"type":"item_reference","id":"x"}]})"),
            "input[0].type: is \"item_reference\"; want message, function_call, "
            "function_call_output or reasoning");
  EXPECT_EQ(error(R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"),
            "input[0].content: a part has type \"input_image\"; only parts with a text are "
            "supported");
  EXPECT_EQ(error(R"({"input":[{"role":"user","content":[7]}]})"),
            "input[0].content: want parts with a \"type\"");
  EXPECT_EQ(error(R"({"input":[{"type":"function_call","call_id":"c","name":"f"}]})"),
            "input[0].arguments: is missing; want a string");
}

}  // namespace
}  // namespace heddle::api
