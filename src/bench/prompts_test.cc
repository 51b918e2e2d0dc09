#include "bench/prompts.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>

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

TEST(PromptMaker, HasEachWordAsOften) {
  const auto count = [](const std::string& text, const std::string& word) {
    std::istringstream stream(text);
    std::string each;
    std::int64_t found = 0;
    while (stream >> each) {
      found += each == word ? 1 : 0;
    }
    return found;
  };
  const std::string all = PromptMaker::every_word(3);
  EXPECT_EQ(std::count(all.begin(), all.end(), ' '), 3 * PromptMaker::vocabulary() - 1);
  std::istringstream some(PromptMaker(1).words(50));
  std::string word;
  while (some >> word) {
    EXPECT_EQ(count(all, word), 3) << word;
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
