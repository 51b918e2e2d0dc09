#include "text/gemma4.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_answers.h"

namespace heddle::text {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Gemma4Parser::Found gemma4_answer(std::string_view answer,
                                  bool cut = false,
                                  std::string_view prompt = "<|turn>model\n",
                                  bool thoughts = true,
                                  bool calls = true) {
  return in_any_portions(Gemma4Parser(thoughts, calls, prompt), answer, cut);
}

TEST(Gemma4, ThoughtsAndTextAreToldApart) {
  const auto found = gemma4_answer("<|channel>thought\n2 + 2 <is\n\n4.\n<channel|>It is 4 <b>.\n");
  EXPECT_EQ(found.reasoning, "2 + 2 <is\n\n4.");
  EXPECT_EQ(found.text, "It is 4 <b>.\n");
  EXPECT_THAT(found.calls, IsEmpty());
  EXPECT_EQ(gemma4_answer(" Hi <|turn").text, " Hi <|turn");
}

TEST(Gemma4, AThoughtMayBeEmptyOrHaveAnotherLabel) {
  for (const char* none : {"<|channel>thought\n<channel|>", "<|channel>thought<channel|>\n"}) {
    const auto found = gemma4_answer(std::string(none) + "yes");
    EXPECT_EQ(found.reasoning, "");
    EXPECT_EQ(found.text, "yes");
  }
  EXPECT_EQ(gemma4_answer("<|channel>thorough<channel|>a").reasoning, "thorough");
  EXPECT_EQ(gemma4_answer("<|channel>thought\na<channel|>b<|channel>thought\nc").reasoning,
            "a\n\nc");
}

TEST(Gemma4, AThoughtMayHaveBegunInThePrompt) {
  constexpr std::string_view kWithin = "<|turn>model\n<|channel>thought\n";
  EXPECT_EQ(gemma4_prompt_end(kWithin), PromptEnd::kWithin);
  EXPECT_EQ(gemma4_answer("hm\n<channel|>yes", false, kWithin).reasoning, "hm");
  constexpr std::string_view kAfter = "<|turn>model\n<|channel>thought\n<channel|>";
  EXPECT_EQ(gemma4_prompt_end(kAfter), PromptEnd::kAfter);
  EXPECT_EQ(gemma4_answer("yes", false, kAfter).text, "yes");
  EXPECT_EQ(gemma4_prompt_end("<|channel>thought\n<|turn>user\nHi<turn|>\n<|turn>model\n"),
            PromptEnd::kBefore);
}

TEST(Gemma4, CallsAreNamesAndArguments) {
  const auto found = gemma4_answer(
      "Wait. \n<|tool_call>call:get_weather{city:<|\"|>Paris, {F}<|\"|>,days:3}<tool_call|>"
      "<|tool_call>call:tools.shell-exec{}<tool_call|>\n");
  EXPECT_EQ(found.text, "Wait.");
  EXPECT_THAT(
      found.calls,
      ElementsAre(ToolCall{.name = "get_weather", .arguments = R"({"city":"Paris, {F}","days":3})"},
                  ToolCall{.name = "tools.shell-exec", .arguments = "{}"}));
}

TEST(Gemma4, ArgumentsBecomeJson) {
  EXPECT_EQ(gemma4_arguments(R"({a:[1,-2.5e3,{b:<|"|>x"y<|"|>}],c:true,d:null,e:None,f:[]})"),
            R"({"a":[1,-2.5e3,{"b":"x\"y"}],"c":true,"d":null,"e":null,"f":[]})");
  EXPECT_EQ(gemma4_arguments("{<|\"|>key<|\"|> : \"it's\" , b: some words}"),
            R"({"key":"it's","b":"some words"})");
  EXPECT_EQ(gemma4_arguments("{a:<|\"|>l1\nl2\\<|\"|>}"), R"({"a":"l1\nl2\\"})");
  EXPECT_EQ(gemma4_arguments(std::string("{a:2\0}", 6)), R"({"a":"2\u0000"})");
  for (const char* broken : {"{a:1", "{a}", "{a:1}}", "[1]", "{:1}", "{a:}", "{a:1 b:2}{", ""}) {
    const auto found = gemma4_arguments(broken);
    EXPECT_FALSE(found) << broken << " became " << *found;
  }
  EXPECT_FALSE(gemma4_arguments("{a:" + std::string(200, '[') + std::string(200, ']') + "}"));
}

TEST(Gemma4, WhatIsNoCallIsText) {
  for (const std::string broken : {"<|tool_call>hello<tool_call|>",
                                   "<|tool_call>call:two words{a:1}<tool_call|>",
                                   "<|tool_call>call:f{a:<|\"|>x}<tool_call|>",
                                   "<|tool_call>call:f{a:1"}) {
    const auto found = gemma4_answer(broken);
    EXPECT_EQ(found.text, broken);
    EXPECT_THAT(found.calls, IsEmpty());
  }
  const std::string call = "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>";
  EXPECT_EQ(gemma4_answer(call, false, "", true, false).text, call) << "none are looked for";
  EXPECT_EQ(gemma4_answer("<|channel>thought\na<channel|>b", false, "", false).text,
            "<|channel>thought\na<channel|>b")
      << "thoughts are text";
}

TEST(Gemma4, ACallThatTheAnswerEndsInCounts) {
  const ToolCall whole{.name = "f", .arguments = R"({"a":1})"};
  EXPECT_THAT(gemma4_answer("<|tool_call>call:f{a:1}").calls, ElementsAre(whole));
  const auto cut = [](std::string_view body) {
    return gemma4_answer("<|tool_call>" + std::string(body), true).calls;
  };
  EXPECT_THAT(cut("ca"), IsEmpty());
  EXPECT_THAT(cut("call:f"), ElementsAre(ToolCall{.name = "f", .whole = false}));
  EXPECT_THAT(cut("call:f{a:<|\"|>Par"),
              ElementsAre(ToolCall{.name = "f", .arguments = R"({"a":"Par)", .whole = false}));
  EXPECT_THAT(cut("call:f{a:[1,2"),
              ElementsAre(ToolCall{.name = "f", .arguments = R"({"a":[1,)", .whole = false}));
  EXPECT_THAT(cut("call:f{a:1}"), ElementsAre(whole));
}

}  // namespace
}  // namespace heddle::text
