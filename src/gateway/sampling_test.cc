#include "gateway/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/model_text.h"
#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SamplingTest : public testing::Test {
 protected:
  spec::GenerationDefaults defaults{};
  std::vector<TokenId> eos{2};
  api::GenerationParams params{};

  std::vector<spec::SamplingParams> resolve(std::int64_t prompt = 10, std::int64_t most = 0) {
    const SamplingLimits limits{.defaults = defaults, .eos = eos, .vocab = 100, .context = 64};
    auto resolved = resolve_sampling(params, limits, prompt, /*seed=*/77, most);
    EXPECT_TRUE(std::holds_alternative<std::vector<spec::SamplingParams>>(resolved));
    return std::get<std::vector<spec::SamplingParams>>(resolved);
  }
};

TEST_F(SamplingTest, DefaultsAreOpenAis) {
  const spec::SamplingParams one = resolve().at(0);
  EXPECT_EQ(one.temperature, 1);
  EXPECT_EQ(one.top_p, 1);
  EXPECT_EQ(one.top_k, 0);
  EXPECT_EQ(one.repetition_penalty, 1);
  EXPECT_EQ(one.seed, 77U);
  EXPECT_EQ(one.max_tokens, 54) << "what is left of the context";
  EXPECT_THAT(one.stop_tokens, ElementsAre(2));
}

TEST_F(SamplingTest, TheClientGoesBeforeTheModelBeforeTheDefault) {
  defaults.numbers[&spec::SamplingParams::temperature] = 0.6;
  defaults.top_k = 20;
  defaults.max_new_tokens = 7;
  params.top_k = 5;
  EXPECT_EQ(resolve()[0].temperature, 0.6F);
  EXPECT_EQ(resolve()[0].top_k, 5);
  EXPECT_EQ(resolve()[0].max_tokens, 7);
  EXPECT_EQ(resolve(10, 16)[0].max_tokens, 16);
  params.max_tokens = 1000;
  EXPECT_EQ(resolve()[0].max_tokens, 54);
  defaults.do_sample = false;
  EXPECT_EQ(resolve()[0].temperature, 0);
  params.numbers[&spec::SamplingParams::temperature] = 0.5;
  EXPECT_EQ(resolve()[0].temperature, 0.5F);
}

TEST_F(SamplingTest, BadWordsAreMadeOfTokens) {
  const TestModel model;
  const auto opened = open_model_text(model.directory(), 0).value();
  const auto words = tokens_of_words({"ab", "ab", "c"}, *opened->text->tokenizer());
  const auto& found = std::get<std::vector<spec::BadWord>>(words);
  ASSERT_EQ(found.size(), 4U) << "at the start of a text and within one, each once";
  EXPECT_THAT(found[0].tokens, ElementsAre('a', 'b'));
  EXPECT_THAT(found[1].tokens, ElementsAre(' ', 'a', 'b'));
  EXPECT_THAT(found[2].tokens, ElementsAre('c'));
  const auto wrong = tokens_of_words({"\xff"}, *opened->text->tokenizer());
  EXPECT_EQ(std::get<api::ApiError>(wrong).param, "bad_words");
}

TEST_F(SamplingTest, EachChoiceIsNumberedAndSharesTheSeed) {
  params.choices = 3;
  params.seed = 5;
  params.stop_token_ids = {9, 2};
  const auto choices = resolve();
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[2].choice, 2U);
  EXPECT_EQ(choices[2].seed, 5U);
  EXPECT_THAT(choices[0].stop_tokens, ElementsAre(2, 9));
}

TEST_F(SamplingTest, TokensBeyondTheVocabularyAreRefused) {
  const SamplingLimits limits{.defaults = defaults, .eos = eos, .vocab = 100, .context = 64};
  params.logit_bias = {{100, 1.0F}};
  const auto refused = resolve_sampling(params, limits, 10, 0, 0);
  EXPECT_THAT(std::get<api::ApiError>(refused).message, HasSubstr("logit_bias: token 100"));
  EXPECT_EQ(check_prompt({1, 100}, limits, "prompt")->param, "prompt");
  EXPECT_EQ(check_prompt({1, 99}, limits, "prompt"), std::nullopt);
}

TEST_F(SamplingTest, APromptMustLeaveRoomForAnAnswer) {
  const SamplingLimits limits{.defaults = defaults, .eos = eos, .vocab = 100, .context = 64};
  const auto refused = check_prompt(std::vector<TokenId>(64, 1), limits, "messages");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, "context_length_exceeded");
  EXPECT_THAT(refused->message, HasSubstr("64 tokens long"));
  EXPECT_FALSE(check_prompt(std::vector<TokenId>(63, 1), limits, "messages"));
  EXPECT_TRUE(check_prompt({}, limits, "prompt"));
}

}  // namespace
}  // namespace heddle::gateway
