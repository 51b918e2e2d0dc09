#include "api/conversation.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

json read(const std::string& text) {
  BodyReader body(text);
  const Turns turns = read_turns(body);
  const std::string messages = chat_messages(body.text("instructions").value_or(""), turns).json;
  EXPECT_TRUE(body.ok()) << body.error().message;
  return json::parse(messages);
}

std::string error(const std::string& text) {
  BodyReader body(text);
  (void)read_turns(body);
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

TEST(Conversation, InstructionsAndLeadingSystemMessagesAreOne) {
  EXPECT_EQ(read(R"({"instructions":"a","input":[{"role":"developer","content":"b"},
              {"role":"user","content":"u"},{"role":"developer","content":"late"}]})"),
            json::parse(R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"u"},
                            {"role":"system","content":"late"}])"));
}

TEST(Conversation, CustomToolsAreFunctionsOfOneText) {
  const json messages = read(R"({"input":[
      {"type":"custom_tool_call","call_id":"c1","name":"patch","input":"a \"b\""},
      {"type":"custom_tool_call_output","call_id":"c1","output":"done"}]})");
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"],
            json::parse(R"({"name":"patch","arguments":{"input":"a \"b\""}})"));
  EXPECT_EQ(messages[1]["content"], "done");
}

TEST(Conversation, RecordsOfOtherToolsAreLeftOutWithAWarning) {
  BodyReader body(R"({"input":[{"role":"user","content":"u"},{"type":"web_search_call"}]})");
  EXPECT_EQ(read_turns(body).json, R"({"role":"user","content":"u"})");
  EXPECT_TRUE(body.ok());
  EXPECT_EQ(
      body.take_warnings(),
      std::vector<std::string>{"input[1]: is of the type \"web_search_call\", and was left out"});
}

TEST(Conversation, TurnsFollowEachOther) {
  Turns turns{.system = "s", .json = "1", .text_bytes = 2};
  turns.append({.system = "t", .json = "2", .text_bytes = 3});
  EXPECT_EQ(chat_messages("i", turns).json,
            R"([{"role":"system","content":"i\n\ns"},1,{"role":"system","content":"t"},2])");
  EXPECT_EQ(chat_messages("i", turns).text_bytes, 6U);
}

TEST(Conversation, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(error("{}"), "input: is missing; want a string or a list of items");
  EXPECT_EQ(error(R"({"input":[]})"), "input: is a list of 0; want a string or a list of items");
  EXPECT_EQ(error(R"({"input":[5]})"), "input[0]: is 5; want an object");
  EXPECT_EQ(error(R"({"input":[{"role":"user"}]})"), "input[0].content: is missing; want a string");
  EXPECT_EQ(error(R"({"input":[{"type":"item_reference","id":"x"}]})"),
            "input[0].type: is \"item_reference\"; want message, reasoning, function_call, "
            "custom_tool_call or the output of one");
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
