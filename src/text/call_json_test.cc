#include "text/call_json.h"

#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::text {
namespace {

using testing::ElementsAre;

TEST(CallJson, WhiteSpaceOutsideOfStringsIsDropped) {
  EXPECT_EQ(dense_json(" { \"a b\" :\n[ 1.50 , \"\\\" \" ] }"), "{\"a b\":[1.50,\"\\\" \"]}");
  EXPECT_EQ(dense_json("{ \"a b "), "{\"a b ");
}

TEST(CallJson, ArgumentsAreAsTheModelWroteThem) {
  const auto calls = parse_tool_calls(
      R"( {"name": "f", "arguments": {"x": 1.50, "y": 1e30, "z": "\u00e9\/", "x": 2}} )");
  ASSERT_TRUE(calls);
  EXPECT_THAT(*calls, ElementsAre(ToolCall{"f", R"({"x":1.50,"y":1e30,"z":"\u00e9\/","x":2})"}));
}

TEST(CallJson, TheFirstOfMembersOfANameCounts) {
  const auto calls = parse_tool_calls(
      R"([{"name": "f", "parameters": null, "arguments": {"x": 1}, "parameters": {}, "name": 3}])");
  ASSERT_TRUE(calls);
  EXPECT_THAT(*calls, ElementsAre(ToolCall{"f", R"({"x":1})"}));
}

TEST(CallJson, WhatIsNoCallIsNone) {
  for (const char* json : {"",
                           "3",
                           "[3]",
                           "[]",
                           "{}",
                           R"({"name": ""})",
                           R"({"name": "f")",
                           R"({"name": "f", "arguments": [1]})",
                           R"({"name": "f"} x)",
                           R"({"name": "f", "arguments": "{\"x\""})"}) {
    EXPECT_FALSE(parse_tool_calls(json) && !parse_tool_calls(json)->empty()) << json;
  }
}

TEST(CallJson, NothingStandsBehindAZeroByte) {
  using namespace std::string_view_literals;
  EXPECT_FALSE(is_json_object("{\"a\": 3}\0 and more"sv));
  EXPECT_FALSE(parse_tool_calls("{\"name\": \"f\"}\0 and more"sv));
  EXPECT_TRUE(is_json_object("{\"a\": \"\\u0000\"}"));
}

TEST(CallJson, KnowsWhereArgumentsBegin) {
  EXPECT_EQ(name_before_arguments(R"({"name": "f", "arguments": {)"), "f");
  EXPECT_EQ(name_before_arguments(R"({"type": "x", "name": "\u0066", "parameters": "{)"), "f");
  for (const char* head : {R"({"arguments": {)",
                           R"({"name": "f", "x": {)",
                           R"({"name": "f", "x": {"arguments": {)",
                           R"({"name": "f", "arguments": "a\"{)",
                           R"({"name": "f", "arguments": "x{)",
                           "{",
                           "x {"}) {
    EXPECT_EQ(name_before_arguments(head), std::nullopt) << head;
  }
}

}  // namespace
}  // namespace heddle::text
