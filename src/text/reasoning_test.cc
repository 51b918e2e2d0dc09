#include "text/reasoning.h"

#include <gtest/gtest.h>

namespace heddle::text {
namespace {

using Both = std::pair<std::string, std::string>;

/// Reasoning and text of an answer cut at the set bits of `cuts`.
Both split(const std::string& answer, std::uint64_t cuts, const std::string& prompt = "") {
  ReasoningSplitter splitter(ReasoningFormat::kThink, prompt);
  Both both;
  std::string portion;
  const auto take = [&both](const ReasoningSplitter::Parts& parts) {
    both.first += parts.reasoning;
    both.second += parts.text;
  };
  for (std::size_t i = 0; i < answer.size(); ++i) {
    portion += answer[i];
    if (((cuts >> (i % 64)) & 1U) != 0) {
      take(splitter.push(portion));
      portion.clear();
    }
  }
  take(splitter.push(portion));
  take(splitter.finish());
  return both;
}

TEST(Reasoning, EverySplitOfTheSameTextGivesTheSameParts) {
  const std::vector<std::pair<std::string, Both>> cases{
      {"<think>a</think>b", {"a", "b"}},
      {"<think>\n</t\n</think>x", {"</t", "x"}},
      {"<thin>ab</think>", {"", "<thin>ab</think>"}},
      {"\n<think></think>", {"", ""}},
      {"<think> <</think>", {"<", ""}},
      {" a<think>b", {"", " a<think>b"}},
      {"<think>a</thin", {"a</thin", ""}},
      {" <thi", {"", " <thi"}}};
  for (const auto& [answer, expected] : cases) {
    ASSERT_LE(answer.size(), 24U);
    for (std::uint64_t cuts = 0; cuts < (1ULL << (answer.size() - 1)); cuts += 1 + cuts / 4096) {
      ASSERT_EQ(split(answer, cuts), expected) << answer << " cut at " << cuts;
    }
  }
}

TEST(Reasoning, WhiteSpaceAroundTheMarkersIsDroppedAndThatWithinIsKept) {
  EXPECT_EQ(split("\n<think>\n\na b\n c \n</think>\n\nd e ", ~0ULL), Both("a b\n c", "d e "));
}

TEST(Reasoning, ATemplateThatOpensTheThoughtMeansThatTheAnswerBeginsWithin) {
  EXPECT_EQ(split("hm</think>yes", 5, "user: hi\nassistant: <think>\n"), Both("hm", "yes"));
  EXPECT_EQ(split("hm", 5, "<think>"), Both("hm", ""));
  EXPECT_EQ(split("hm</think>yes", 5, "<think></think>"), Both("", "hm</think>yes"));
}

TEST(Reasoning, APromptEndsBeforeWithinOrAfterAThought) {
  EXPECT_EQ(prompt_end(""), PromptEnd::kBefore);
  EXPECT_EQ(prompt_end("<think>a</think> b"), PromptEnd::kBefore);
  EXPECT_EQ(prompt_end(" \n"), PromptEnd::kBefore);
  EXPECT_EQ(prompt_end("a <think> \n"), PromptEnd::kWithin);
  EXPECT_EQ(prompt_end("<think>\n\n</think>\n\n"), PromptEnd::kAfter);
}

TEST(Reasoning, TellsWhetherItIsWithinAThought) {
  ReasoningSplitter splitter(ReasoningFormat::kThink, "");
  EXPECT_FALSE(splitter.thinking());
  (void)splitter.push("<think>a");
  EXPECT_TRUE(splitter.thinking());
  (void)splitter.push("</think>");
  EXPECT_FALSE(splitter.thinking());
}

TEST(Reasoning, NoFormatLeavesTheTextAlone) {
  ReasoningSplitter splitter(ReasoningFormat::kNone, "<think>");
  EXPECT_EQ(splitter.push(" <think>a</think>").text, " <think>a</think>");
  EXPECT_EQ(splitter.finish().text, "");
}

}  // namespace
}  // namespace heddle::text
