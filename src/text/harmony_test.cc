#include "text/harmony.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_answers.h"

namespace heddle::text {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::string_view kPrompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";

HarmonyParser::Found parsed(std::string_view answer,
                            bool cut = false,
                            std::string_view prompt = kPrompt) {
  return in_any_portions(HarmonyParser(true, true, prompt), answer, cut);
}

TEST(Harmony, ThoughtsAndTextAreToldApart) {
  const auto found = parsed(
      "<|channel|>analysis<|message|>User asks: \"What is 2 + 2?\" Simple arithmetic.<|end|>"
      "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4 <b>.<|return|>");
  EXPECT_EQ(found.reasoning, "User asks: \"What is 2 + 2?\" Simple arithmetic.");
  EXPECT_EQ(found.text, "2 + 2 = 4 <b>.");
  EXPECT_THAT(found.calls, IsEmpty());
}

TEST(Harmony, MessagesForFunctionsAreCalls) {
  const auto found = parsed(
      "<|channel|>analysis<|message|>Need to use function get_current_weather.<|end|>"
      "<|start|>assistant<|channel|>commentary to=functions.get_current_weather "
      "<|constrain|>json<|message|>{\"location\":\"San Francisco\"}<|call|>");
  EXPECT_EQ(found.reasoning, "Need to use function get_current_weather.");
  EXPECT_EQ(found.text, "");
  EXPECT_THAT(found.calls,
              ElementsAre(ToolCall{.name = "get_current_weather",
                                   .arguments = "{\"location\":\"San Francisco\"}"}));
}

TEST(Harmony, TheRecipientMayStandBeforeTheChannel) {
  const auto found =
      parsed(" to=functions.f<|channel|>commentary json<|message|>{\"a\": [1]}<|call|>");
  EXPECT_THAT(found.calls, ElementsAre(ToolCall{.name = "f", .arguments = "{\"a\":[1]}"}));
  const auto again = parsed(
      "<|channel|>commentary<|message|>Two things.<|end|><|start|>assistant to=functions.g"
      "<|channel|>commentary <|constrain|>json<|message|><|call|>");
  EXPECT_EQ(again.text, "Two things.");
  EXPECT_THAT(again.calls, ElementsAre(ToolCall{.name = "g", .arguments = "{}"}));
}

TEST(Harmony, MessagesOfAKindAreParted) {
  const auto found = parsed(
      "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>"
      "First.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant"
      "<|channel|>final<|message|>Then.");
  EXPECT_EQ(found.reasoning, "One.\n\nTwo.");
  EXPECT_EQ(found.text, "First.\n\nThen.");
}

TEST(Harmony, ACallThatIsNoObjectIsText) {
  const auto found = parsed("<|channel|>commentary to=functions.f<|message|>not json<|call|>");
  EXPECT_EQ(found.text, "not json");
  EXPECT_THAT(found.calls, IsEmpty());
}

TEST(Harmony, ArgumentsAreGivenAsTheyComeWhereThatIsAskedFor) {
  HarmonyParser parser(true, true, kPrompt, GiveCalls::kAsTheyCome);
  const auto head =
      parser.push("<|channel|>commentary to=functions.f <|constrain|>json<|message|>");
  EXPECT_THAT(head.calls, IsEmpty());
  EXPECT_THAT(parser.push(" {\"a\": ").calls,
              ElementsAre(ToolCall{.name = "f", .arguments = "{\"a\":", .whole = false}));
  EXPECT_THAT(parser.push("\"<|b\"}").calls,
              ElementsAre(ToolCall{.arguments = "\"<|b\"}", .continues = true}));
  EXPECT_THAT(parser.push("\n<|call|>").calls, IsEmpty());
  const auto next = parser.push("<|start|>assistant<|channel|>final<|message|>Done.<|return|>");
  EXPECT_EQ(next.text, "Done.");
  EXPECT_EQ(parser.finish().text, "");
}

TEST(Harmony, ACutCallIsGivenAsFarAsItGoes) {
  const auto found = parsed(
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": \"b <", true);
  EXPECT_THAT(found.calls,
              ElementsAre(ToolCall{.name = "f", .arguments = "{\"a\":\"b <", .whole = false}));
  EXPECT_THAT(parsed("<|channel|>commentary to=functions.f", true).calls, IsEmpty());
  EXPECT_EQ(parsed("<|channel|>analysis<|message|>so <|e", true).reasoning, "so <|e");
}

TEST(Harmony, AnAnswerWithoutMarkersIsText) {
  EXPECT_EQ(parsed("Hello <|there|>.").text, "Hello <|there|>.");
  EXPECT_EQ(parsed("to").text, "to");
  EXPECT_EQ(parsed("today <<|").text, "today <<|");
}

TEST(Harmony, GoesOnWhereThePromptIsWithinAMessage) {
  const std::string final = std::string(kPrompt) + std::string(kHarmonyFinal);
  EXPECT_EQ(parsed("{\"a\": 1}", false, final).text, "{\"a\": 1}");
  const std::string thought = std::string(kPrompt) + "<|channel|>analysis<|message|>We";
  EXPECT_TRUE(HarmonyParser(true, true, thought).thinking());
  EXPECT_EQ(parsed(" think<|end|>", false, thought).reasoning, " think");
  const std::string head = std::string(kPrompt) + "<|channel|>";
  EXPECT_EQ(parsed("analysis<|message|>Hm", false, head).reasoning, "Hm");
}

TEST(Harmony, WhatIsNotAskedForIsText) {
  constexpr std::string_view kAnswer =
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f<|message|>{}<|call|>";
  const auto calls = in_portions(HarmonyParser(false, true, kPrompt), kAnswer, 5);
  EXPECT_EQ(calls.text, "Hm.");
  EXPECT_EQ(calls.calls.size(), 1U);
  const auto thoughts = in_portions(HarmonyParser(true, false, kPrompt), kAnswer, 5);
  EXPECT_EQ(thoughts.reasoning, "Hm.");
  EXPECT_EQ(thoughts.text, "{}");
}

TEST(Harmony, HeadsOfAnyLengthAreBounded) {
  const std::string head(5000, 'x');
  const auto found = parsed("<|channel|>final " + head + "<|message|>Yes.");
  EXPECT_EQ(found.text, "Yes.");
}

}  // namespace
}  // namespace heddle::text
