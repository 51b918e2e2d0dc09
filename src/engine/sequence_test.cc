#include "engine/sequence.h"

#include <gtest/gtest.h>

#include "engine/philox.h"

namespace heddle::engine {
namespace {

TEST(TokenUses, CountsPromptAndOutputApart) {
  SequenceStart start{.tokens = {5, 3, 5, 9, 3, 3}, .prompt_tokens = 3};
  start.params.frequency_penalty = 0.5F;
  start.params.logit_bias = {{9, 2.0F}, {1, -1.0F}};
  const auto uses = token_uses(start);
  ASSERT_EQ(uses.size(), 4U);
  const auto expect = [&](std::size_t i, TokenId token, int generated, float bias, int seen) {
    EXPECT_EQ(uses[i].token, token);
    EXPECT_EQ(uses[i].generated, generated) << token;
    EXPECT_EQ(uses[i].bias, bias) << token;
    EXPECT_EQ(uses[i].seen, seen) << token;
  };
  expect(0, 1, 0, -1.0F, 0);
  expect(1, 3, 2, 0.0F, 1);
  expect(2, 5, 0, 0.0F, 1);
  expect(3, 9, 1, 2.0F, 1);
}

TEST(TokenUses, AreBiasesAloneWithoutPenalties) {
  SequenceStart start{.tokens = {5, 3}, .prompt_tokens = 2};
  EXPECT_TRUE(token_uses(start).empty());
  start.params.logit_bias = {{3, 2.0F}};
  ASSERT_EQ(token_uses(start).size(), 1U);
  EXPECT_EQ(token_uses(start)[0].seen, 0);
}

TEST(TokenUses, CountingOneByOneEqualsCountingAtOnce) {
  SequenceStart start{.tokens = {4, 8}, .prompt_tokens = 2};
  start.params.presence_penalty = 1.0F;
  auto grown = token_uses(start);
  for (const TokenId token : {8, 1, 9, 1, 4}) {
    start.tokens.push_back(token);
    count_generated(grown, token);
  }
  const auto fresh = token_uses(start);
  ASSERT_EQ(grown.size(), fresh.size());
  for (std::size_t i = 0; i < grown.size(); ++i) {
    EXPECT_EQ(grown[i].token, fresh[i].token);
    EXPECT_EQ(grown[i].generated, fresh[i].generated);
    EXPECT_EQ(grown[i].seen, fresh[i].seen);
  }
}

TEST(FinishReasonOf, PrefersTheStopTokenToTheLimits) {
  Sequence sequence;
  sequence.start = {.tokens = {1, 2, 3}, .prompt_tokens = 2};
  sequence.start.params.max_tokens = 1;
  sequence.start.params.stop_tokens = {3};
  EXPECT_EQ(finish_reason(sequence, 3), spec::FinishReason::kStop);
  sequence.start.params.ignore_eos = true;
  EXPECT_EQ(finish_reason(sequence, 100), spec::FinishReason::kLength);
  sequence.start.params.max_tokens = 9;
  EXPECT_EQ(finish_reason(sequence, 100), spec::FinishReason::kNone);
  EXPECT_EQ(finish_reason(sequence, 3), spec::FinishReason::kLength);
}

// The known answers of Random123, the authors' implementation (kat_vectors).
TEST(Philox, MatchesKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDraw, IsUniformAndDependsOnEachArgument) {
  double sum = 0.0;
  for (std::uint64_t position = 0; position < 10'000; ++position) {
    const double u = uniform_draw(7, 0, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.01);
  EXPECT_NE(uniform_draw(7, 0, 0), uniform_draw(8, 0, 0));
  EXPECT_NE(uniform_draw(7, 0, 0), uniform_draw(7 + (std::uint64_t{1} << 32U), 0, 0));
  EXPECT_NE(uniform_draw(7, 0, 0), uniform_draw(7, 1, 0));
  EXPECT_NE(uniform_draw(7, 0, 0), uniform_draw(7, 0, 1));
}

}  // namespace
}  // namespace heddle::engine
