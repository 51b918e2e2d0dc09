#include "api/anthropic/message_tools.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

constexpr const char* kMessageTools = R"("tools":[{"name":"sum","description":"adds",
    "input_schema":{"type":"object","properties":{"a":{"type":"integer"}}},
    "cache_control":{"type":"ephemeral"}},{"name":"now","input_schema":{}}])";

std::string asking_with(const std::string& choice) {
  return std::string("{") + kMessageTools + (choice.empty() ? "" : ",\"tool_choice\":" + choice) +
         "}";
}

ToolUse read_message_use(const std::string& text) {
  BodyReader body(text);
  ToolUse use = read_message_tools(body);
  EXPECT_TRUE(body.ok()) << body.error().message;
  return use;
}

std::string use_complaint(const std::string& text) {
  BodyReader body(text);
  (void)read_message_tools(body);
  return body.ok() ? "" : body.error().message;
}

TEST(MessageTools, BecomeThoseOfChats) {
  const ToolUse use = read_message_use(asking_with(""));
  EXPECT_EQ(json::parse(use.json), json::parse(R"([
      {"type":"function","function":{"name":"sum","description":"adds",
       "parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},
      {"type":"function","function":{"name":"now","parameters":{"type":"object"}}}])"));
  EXPECT_EQ(use.list.size(), 2U);
  EXPECT_EQ(use.choice, ToolChoice::kAuto);
  EXPECT_TRUE(use.parallel);
  EXPECT_EQ(read_message_use("{}").choice, ToolChoice::kNone);
}

TEST(MessageTools, AreChosen) {
  EXPECT_EQ(read_message_use(asking_with(R"({"type":"none"})")).choice, ToolChoice::kNone);
  EXPECT_EQ(read_message_use(asking_with(R"({"type":"auto"})")).choice, ToolChoice::kAuto);
  const ToolUse any =
      read_message_use(asking_with(R"({"type":"any","disable_parallel_tool_use":true})"));
  EXPECT_EQ(any.choice, ToolChoice::kRequired);
  EXPECT_FALSE(any.several());
  const ToolUse named = read_message_use(asking_with(R"({"type":"tool","name":"now"})"));
  EXPECT_EQ(named.choice, ToolChoice::kNamed);
  EXPECT_EQ(named.named, "now");
}

TEST(MessageTools, WhatIsWrongIsNamed) {
  EXPECT_NE(use_complaint(asking_with(R"({"type":"tool","name":"nobody"})")), "");
  EXPECT_NE(use_complaint(R"({"tool_choice":{"type":"any"}})"), "");
  EXPECT_NE(use_complaint(asking_with(R"({"type":"some"})")), "");
  EXPECT_NE(use_complaint(asking_with(R"("auto")")), "");
  EXPECT_EQ(use_complaint(R"({"tools":[{"type":"web_search_20250305","name":"web_search"}]})"),
            "tools[0].type: is \"web_search_20250305\"; Anthropic runs such tools, heddle knows "
            "those of the client");
  EXPECT_EQ(use_complaint(R"({"tools":[{"name":"f"}]})"),
            "tools[0].input_schema: is missing; want a JSON schema, which is an object");
  EXPECT_EQ(use_complaint(R"({"tools":[{"name":"f","input_schema":{}},
                                         {"name":"f","input_schema":{}}]})"),
            "tools[1].name: \"f\" occurs twice");
}

}  // namespace
}  // namespace heddle::api
