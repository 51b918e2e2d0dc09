#include "gateway/answer_text.h"

#include <array>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "gateway/model_text.h"
#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using spec::FinishReason;

class AnswerTextTest : public testing::Test {
 protected:
  AnswerText make(const std::vector<std::string>& stop) const {
    Result<AnswerText> text = AnswerText::make(opened->text, {.stop = stop});
    EXPECT_TRUE(text);
    return std::move(text).value();
  }

  TestModel model{};
  std::shared_ptr<const ModelText> opened = open_model_text(model.directory(), 0).value();
};

TEST_F(AnswerTextTest, HoldsBackPartsOfCharacters) {
  AnswerText text = make({});
  EXPECT_EQ(text.push(0xC3, FinishReason::kNone), "");
  EXPECT_EQ(text.push(0xA9, FinishReason::kNone), "\xC3\xA9");
  EXPECT_EQ(text.push(256, FinishReason::kStop), "");
  EXPECT_TRUE(text.ended());
  EXPECT_EQ(text.finish(), FinishReason::kStop);
  EXPECT_EQ(text.stop(), std::nullopt);
  EXPECT_EQ(text.tokens(), 3);
}

// A stop string that begins within them ends nothing.
TEST_F(AnswerTextTest, NothingEndsWithinMinTokens) {
  AnswerText text = AnswerText::make(opened->text, {.stop = {"ab"}, .min_tokens = 3}).value();
  EXPECT_EQ(text.push('a', FinishReason::kNone), "a");
  EXPECT_EQ(text.push('b', FinishReason::kNone), "b");
  EXPECT_EQ(text.push('a', FinishReason::kNone), "a");
  EXPECT_EQ(text.push('b', FinishReason::kNone), "b");
  EXPECT_EQ(text.push('a', FinishReason::kNone), "");
  EXPECT_EQ(text.push('b', FinishReason::kNone), "");
  EXPECT_EQ(text.finish(), FinishReason::kStop);
}

TEST_F(AnswerTextTest, WhatIsHeldBackComesAtTheEnd) {
  AnswerText text = make({"stop"});
  EXPECT_EQ(text.push('s', FinishReason::kNone), "");
  EXPECT_EQ(text.push('t', FinishReason::kLength), "st");
  EXPECT_EQ(text.finish(), FinishReason::kLength);
}

TEST_F(AnswerTextTest, AStopStringMayCompleteOnTheLastToken) {
  AnswerText text = make({"ab"});
  EXPECT_EQ(text.push('a', FinishReason::kNone), "");
  EXPECT_EQ(text.push('b', FinishReason::kLength), "");
  EXPECT_EQ(text.finish(), FinishReason::kStop);
  EXPECT_EQ(text.stop(), 0U);
}

TEST_F(AnswerTextTest, TheStopStringMayBeShown) {
  AnswerText text = AnswerText::make(opened->text, {.stop = {"ab"}, .include_stop = true}).value();
  EXPECT_EQ(text.push('x', FinishReason::kNone), "x");
  EXPECT_EQ(text.push('a', FinishReason::kNone), "");
  EXPECT_EQ(text.push('b', FinishReason::kNone), "ab");
  EXPECT_EQ(text.stop(), 0U);
}

TEST_F(AnswerTextTest, OfSpecialTokensOnlyMarkersAreText) {
  constexpr std::array<std::string_view, 2> kMarkers{"<eos>", "<absent>"};
  AnswerText text = AnswerText::make(opened->text, {}, kMarkers).value();
  EXPECT_EQ(text.push(256, FinishReason::kNone), "<eos>");
  EXPECT_EQ(text.push(256, FinishReason::kStop), "") << "where it ends the answer it is none";
  AnswerText plain = make({});
  EXPECT_EQ(plain.push(256, FinishReason::kNone), "");
}

TEST_F(AnswerTextTest, AnEmptyStopStringIsRefused) {
  EXPECT_FALSE(AnswerText::make(opened->text, {.stop = {""}}));
}

// Property: whatever the text and the stop string, what is shown is the text up to its first
// occurrence.
TEST_F(AnswerTextTest, ShowsExactlyWhatStandsBeforeTheFirstStopString) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    std::string whole;
    for (std::uint64_t i = 0; i < 1 + rng.below(12); ++i) {
      whole += static_cast<char>('a' + rng.below(2));
    }
    std::string stop;
    for (std::uint64_t i = 0; i < 1 + rng.below(3); ++i) {
      stop += static_cast<char>('a' + rng.below(2));
    }
    AnswerText text = make({stop});
    std::string shown;
    for (std::size_t i = 0; i < whole.size() && !text.ended(); ++i) {
      const bool last = i + 1 == whole.size();
      shown += text.push(whole[i], last ? FinishReason::kLength : FinishReason::kNone);
    }
    EXPECT_EQ(shown, whole.substr(0, whole.find(stop))) << "seed " << seed;
  }
}

}  // namespace
}  // namespace heddle::gateway
