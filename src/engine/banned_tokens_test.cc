#include "engine/banned_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A prompt of two tokens, and an answer.
Sequence answering(std::vector<TokenId> answer) {
  Sequence sequence;
  sequence.start.tokens = {7, 8};
  sequence.start.prompt_tokens = 2;
  sequence.start.tokens.insert(sequence.start.tokens.end(), answer.begin(), answer.end());
  return sequence;
}

TEST(BannedTokens, NothingStopsBeforeMinTokens) {
  Sequence sequence = answering({1});
  sequence.start.params.stop_tokens = {0, 9};
  sequence.start.params.min_tokens = 2;
  EXPECT_THAT(banned_tokens(sequence, 1), ElementsAre(0, 9));
  EXPECT_THAT(banned_tokens(sequence, 2), IsEmpty()) << "of a token that nobody knows yet";
  EXPECT_FALSE(bans_by_token(sequence.start.params));
}

TEST(BannedTokens, ABadWordIsNotEnded) {
  Sequence sequence = answering({1, 2});
  sequence.start.params.bad_words = {{{5}}, {{1, 2, 3}}, {{2, 4}}, {{1, 6}}};
  EXPECT_THAT(banned_tokens(sequence, 2), ElementsAre(3, 4, 5));
  EXPECT_TRUE(bans_by_token(sequence.start.params));
}

// The prompt's tokens are no part of a word.
TEST(BannedTokens, AWordBeginsInTheAnswer) {
  Sequence sequence = answering({});
  sequence.start.params.bad_words = {{{8, 3}}};
  EXPECT_THAT(banned_tokens(sequence, 0), IsEmpty());
}

TEST(AppendUses, BansWithWhatIsCounted) {
  Sequence sequence = answering({1});
  sequence.uses = {{.token = 1, .generated = 1, .seen = 1}, {.token = 4, .bias = 2.0F}};
  sequence.start.params.bad_words = {{{0}}, {{4}}, {{6}}};
  std::vector<ops::TokenUse> uses{{.token = 3}};
  append_uses(sequence, 1, uses);
  ASSERT_EQ(uses.size(), 5U);
  EXPECT_EQ(uses[0].token, 3) << "what was there before";
  const auto expect = [&](std::size_t i, TokenId token, float bias) {
    EXPECT_EQ(uses[i].token, token);
    EXPECT_EQ(uses[i].bias, bias) << token;
  };
  expect(1, 0, kBannedBias);
  expect(2, 1, 0.0F);
  EXPECT_EQ(uses[2].generated, 1);
  expect(3, 4, kBannedBias);
  expect(4, 6, kBannedBias);
}

}  // namespace
}  // namespace heddle::engine
