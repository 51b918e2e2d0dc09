#include "api/tools.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

const std::string kTool =
    R"({"type":"function","function":{"name":"sum","parameters":{"type":"object","x":1}}})";

ToolUse read(const std::string& json) {
  BodyReader body(json);
  ToolUse use = read_chat_tools(body);
  EXPECT_TRUE(body.ok()) << body.error().message;
  return use;
}

ApiError wrong(const std::string& json) {
  BodyReader body(json);
  (void)read_chat_tools(body);
  EXPECT_FALSE(body.ok()) << json;
  return body.ok() ? ApiError{} : body.error();
}

TEST(Tools, WithoutAnyNoneIsCalled) {
  EXPECT_EQ(read("{}").choice, ToolChoice::kNone);
  EXPECT_EQ(read(R"({"tools":[],"tool_choice":"auto"})").json, "");
}

TEST(Tools, AreKeptAsTheyWereAndTheModelDecides) {
  const ToolUse use =
      read(R"({"tools":[)" + kTool + R"(,{"type":"function","function":{"name":"now"}}]})");
  EXPECT_EQ(use.choice, ToolChoice::kAuto);
  EXPECT_EQ(use.json, "[" + kTool + R"(,{"type":"function","function":{"name":"now"}}])");
  ASSERT_EQ(use.list.size(), 2U);
  EXPECT_EQ(use.list[0].parameters, R"({"type":"object","x":1})");
  EXPECT_EQ(use.list[1].parameters, R"({"type":"object"})");
  EXPECT_TRUE(use.parallel);
  EXPECT_FALSE(use.forced());
}

TEST(Tools, ChoicesOfEveryKind) {
  const std::string tools = R"("tools":[)" + kTool + "]";
  EXPECT_EQ(read("{" + tools + R"(,"tool_choice":"none"})").choice, ToolChoice::kNone);
  EXPECT_EQ(read("{" + tools + R"(,"tool_choice":"required"})").choice, ToolChoice::kRequired);
  const std::string choice = R"(,"tool_choice":{"type":"function","function":{"name":"sum"}})";
  const ToolUse named = read("{" + tools + choice + R"(,"parallel_tool_calls":false})");
  EXPECT_EQ(named.choice, ToolChoice::kNamed);
  EXPECT_EQ(named.named, "sum");
  EXPECT_FALSE(named.parallel);
}

TEST(Tools, WhatIsWrongIsNamed) {
  const std::string tools = R"("tools":[)" + kTool + "]";
  EXPECT_EQ(wrong(R"({"tools":5})").param, "tools");
  EXPECT_EQ(wrong(R"({"tools":[{"type":"web_search"}]})").code, "not_supported");
  EXPECT_EQ(wrong(R"({"tools":[{"type":"function"}]})").param, "tools[0]");
  EXPECT_EQ(wrong(R"({"tools":[{"type":"function","function":{"name":"a b"}}]})").param,
            "tools[0]");
  EXPECT_EQ(wrong(R"({"tools":[)" + kTool + "," + kTool + "]}").param, "tools[1]");
  EXPECT_EQ(wrong(R"({"tool_choice":"required"})").param, "tool_choice");
  EXPECT_EQ(wrong("{" + tools + R"(,"tool_choice":"sometimes"})").param, "tool_choice");
  EXPECT_EQ(
      wrong("{" + tools + R"(,"tool_choice":{"type":"function","function":{"name":"x"}}})").param,
      "tool_choice");
}

TEST(Tools, OfResponsesAreFlatAndBecomeChats) {
  BodyReader body(
      R"({"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}],
          "tool_choice":{"type":"function","name":"f"}})");
  const ToolUse use = read_response_tools(body);
  ASSERT_TRUE(body.ok()) << body.error().message;
  EXPECT_EQ(use.json,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"},)"
            R"("strict":true}}])");
  EXPECT_EQ(use.named, "f");
}

}  // namespace
}  // namespace heddle::api
