#include "api/messages.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

std::string kept(const std::string& messages) {
  BodyReader body(R"({"messages":)" + messages + "}");
  std::string json = read_messages(body).json;
  EXPECT_TRUE(body.ok()) << body.error().message;
  return json;
}

TEST(Messages, ArgumentsOfCallsBecomeTheJsonThatTheyHold) {
  EXPECT_EQ(kept(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
                     "function":{"name":"f","arguments":"{\"a\": [1, \"x\"]}"}}]}])"),
            R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",)"
            R"("function":{"name":"f","arguments":{"a":[1,"x"]}}}]}])");
}

TEST(Messages, OtherArgumentsStayAsTheyWere) {
  for (const std::string arguments : {R"("no json")", R"("[1]")", R"({"a":1})", "null"}) {
    const std::string text =
        R"([{"role":"assistant","tool_calls":[{"function":{"arguments":)" + arguments + "}}]}]";
    EXPECT_EQ(kept(text), text);
  }
  EXPECT_EQ(kept(R"([{"role":"assistant","tool_calls":[5]}])"),
            R"([{"role":"assistant","tool_calls":[5]}])");
}

TEST(Messages, ArgumentsThatHoldTooManyValuesTogetherStayStrings) {
  const std::string many = "{\"a\":[" + std::string(kArgumentPartsMax, ',') + "]}";
  std::size_t left = kArgumentPartsMax;
  EXPECT_EQ(arguments_json(many, left).front(), '"');
  EXPECT_EQ(left, kArgumentPartsMax) << "nothing was taken";
  EXPECT_EQ(arguments_json(R"({"a":1})", left), R"({"a":1})");
  EXPECT_LT(left, kArgumentPartsMax);
  left = 1;
  EXPECT_EQ(arguments_json(R"({"a":1})", left), R"("{\"a\":1}")");
}

TEST(Messages, WhatAModelWroteIsAnObjectOrTakenForAnEmptyOne) {
  EXPECT_EQ(object_json("{\"a\":\n1}"), R"({"a":1})");
  for (const char* cut : {"", "{", "{\"a\"", "}}", "[1]", "7"}) {
    EXPECT_EQ(object_json(cut), "{}") << cut;
  }
}

TEST(Messages, AnswersOfToolsPass) {
  const std::string text = R"([{"role":"tool","tool_call_id":"c1","content":"4"}])";
  EXPECT_EQ(kept(text), text);
}

}  // namespace
}  // namespace heddle::api
