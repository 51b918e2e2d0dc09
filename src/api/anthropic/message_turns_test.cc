#include "api/anthropic/message_turns.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

MessageTurns read_turns(const std::string& text) {
  BodyReader body(text);
  MessageTurns turns = read_message_turns(body);
  EXPECT_TRUE(body.ok()) << body.error().message;
  return turns;
}

json messages_of(const std::string& text) {
  return json::parse(read_turns(text).messages.json);
}

std::string turns_complaint(const std::string& text) {
  BodyReader body(text);
  (void)read_message_turns(body);
  EXPECT_FALSE(body.ok());
  EXPECT_EQ(body.error().status, 400);
  return body.ok() ? "" : body.error().message;
}

TEST(MessageTurns, SystemIsATextOrBlocks) {
  const json wanted = json::parse(R"([{"role":"system","content":"be\nbrief"},
                                      {"role":"user","content":"hi"}])");
  EXPECT_EQ(messages_of(R"({"system":"be\nbrief","messages":[{"role":"user","content":"hi"}]})"),
            wanted);
  EXPECT_EQ(messages_of(R"({"system":[
                {"type":"text","text":"x-anthropic-billing-header: cch=12ab;"},
                {"type":"text","text":"be","cache_control":{"type":"ephemeral"}},
                {"type":"text","text":"brief"}],
              "messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})"),
            wanted)
      << "what changes with each request is left out";
}

TEST(MessageTurns, CallsAndTheirResultsAreMessagesOfTheirOwn) {
  const json messages = messages_of(R"({"messages":[
      {"role":"user","content":"add"},
      {"role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"text","text":"I add"},
        {"type":"tool_use","id":"toolu_1","name":"sum","input":{"a":1}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"1"},
                                                                 {"type":"text","text":"2"}]},
        {"type":"text","text":"go on"}]}]})");
  EXPECT_EQ(messages, json::parse(R"([
      {"role":"user","content":"add"},
      {"role":"assistant","content":"I add","reasoning_content":"hm","tool_calls":[
        {"id":"toolu_1","type":"function","function":{"name":"sum","arguments":{"a":1}}}]},
      {"role":"tool","tool_call_id":"toolu_1","content":"1\n2"},
      {"role":"user","content":"go on"}])"));
}

TEST(MessageTurns, MessagesOfOneRoleAreOneTurn) {
  const MessageTurns turns = read_turns(R"({"messages":[{"role":"user","content":"a"},
      {"role":"user","content":"b"},{"role":"assistant","content":"c"},
      {"role":"user","content":"d"}]})");
  EXPECT_EQ(json::parse(turns.messages.json),
            json::parse(R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":"c"},
                            {"role":"user","content":"d"}])"));
  EXPECT_EQ(turns.answer_begins, "");
  EXPECT_EQ(turns.messages.text_bytes, 4U) << "those of the assistant may be left out";
}

TEST(MessageTurns, TheModelGoesOnFromWhatItSaidLast) {
  const MessageTurns turns = read_turns(R"({"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":"It is"}]})");
  EXPECT_EQ(json::parse(turns.messages.json), json::parse(R"([{"role":"user","content":"a"}])"));
  EXPECT_EQ(turns.answer_begins, "It is");
}

TEST(MessageTurns, WhatIsWrongIsNamed) {
  EXPECT_EQ(turns_complaint(R"({"messages":[{"role":"user","content":[
                {"type":"text","text":"?"},{"type":"image","source":{}}]}]})"),
            "messages[0].content[1].type: is \"image\"; the models here read text alone");
  EXPECT_EQ(
      turns_complaint("{}"),
      "messages: is missing; want a list such as [{\"role\": \"user\", \"content\": \"Hi\"}]");
  EXPECT_EQ(turns_complaint(R"({"messages":[]})"),
            "messages: is a list of 0; want a list of at least one message");
  EXPECT_EQ(turns_complaint(R"({"messages":[{"role":"robot","content":"x"}]})"),
            "messages[0].role: want \"user\" or \"assistant\"");
  EXPECT_EQ(turns_complaint(R"({"messages":[{"role":"user"}]})"),
            "messages[0].content: is missing; want a string or a list of blocks");
  EXPECT_EQ(turns_complaint(R"({"messages":[{"role":"user","content":[
                {"type":"tool_use","id":"1","name":"f","input":{}}]}]})"),
            "messages[0].content[0].type: is \"tool_use\"; "
            "want text, thinking, tool_use or tool_result");
  EXPECT_EQ(turns_complaint(R"({"messages":[{"role":"assistant","content":[
                {"type":"tool_use","id":"1","name":"f"}]}]})"),
            "messages[0].content[0].input: is missing; want an object");
}

}  // namespace
}  // namespace heddle::api
