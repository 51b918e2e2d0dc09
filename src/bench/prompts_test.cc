#include "bench/prompts.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

TEST(PromptMaker, MakesDifferentPromptsOfTheLengthAskedFor) {
  PromptMaker maker(3);
  const std::string one = maker.words(200);
  EXPECT_EQ(std::count(one.begin(), one.end(), ' '), 199);
  EXPECT_NE(one.substr(0, 40), maker.words(200).substr(0, 40));
  EXPECT_EQ(PromptMaker(3).words(200), one);
}

TEST(PromptMaker, DrawsTokensFromThose) {
  const std::vector<TokenId> from{7, 11, 13};
  PromptMaker maker(3);
  const std::vector<TokenId> one = maker.tokens(from, 300);
  ASSERT_EQ(one.size(), 300U);
  for (const TokenId token : from) {
    EXPECT_GT(std::count(one.begin(), one.end(), token), 60);
  }
  EXPECT_EQ(std::count_if(one.begin(),
                          one.end(),
                          [&](TokenId token) { return std::ranges::count(from, token) == 0; }),
            0);
  EXPECT_NE(maker.tokens(from, 300), one);
  EXPECT_EQ(PromptMaker(3).tokens(from, 300), one);
}

TEST(PromptMaker, HasEachWordOnce) {
  std::istringstream all(PromptMaker::every_word());
  std::multiset<std::string> words;
  for (std::string word; all >> word;) {
    words.insert(word);
  }
  EXPECT_EQ(words.size(), 64U);
  std::istringstream some(PromptMaker(1).words(50));
  for (std::string word; some >> word;) {
    EXPECT_EQ(words.count(word), 1U) << word;
  }
}

TEST(TokenScale, GoesThroughBothSamples) {
  const TokenScale scale = scale_through({.words = 8, .tokens = 22}, {.words = 40, .tokens = 70});
  EXPECT_DOUBLE_EQ(scale.per_word, 1.5);
  EXPECT_DOUBLE_EQ(scale.fixed, 10);
  EXPECT_EQ(scale.words(22), 8);
  EXPECT_EQ(scale.words(310), 200);
  EXPECT_EQ(scale.words(3), 1) << "no prompt is empty";
}

TEST(TokenScale, OfSamplesThatTellNothingIsOneTokenAWord) {
  EXPECT_EQ(scale_through({.words = 8, .tokens = 0}, {.words = 40, .tokens = 0}).words(100), 100);
}

}  // namespace
}  // namespace heddle::bench
