#include "gateway/text_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

/// Texts for a model whose tokens are bytes and "<eos>".
class TextReadings : public testing::Test {
 protected:
  explicit TextReadings(std::int64_t context = 200'000)
      : text(open_model_text(files.directory(), context).value()) {}

  [[nodiscard]] const text::Tokenizer& tokenizer() const { return *text->text->tokenizer(); }
  api::Parsed<std::vector<TokenId>> read(const std::string& prompt, const TextBounds& bounds) {
    TextReading reading(tokenizer(), prompt, text::SpecialTokens::kNone, bounds);
    for (steps = 1; !reading.step(); ++steps) {
    }
    return reading.take();
  }
  static const api::ApiError& error(const api::Parsed<std::vector<TokenId>>& read) {
    return std::get<api::ApiError>(read);
  }

  TestModel files{};
  std::shared_ptr<const ModelText> text;
  int steps = 0;
};

TEST_F(TextReadings, GiveTheTokensOfTheWholeText) {
  for (const std::size_t size : {0UL, 1UL, 100'000UL}) {
    std::string prompt;
    for (std::size_t i = 0; prompt.size() < size; ++i) {
      prompt += i % 7 == 0 ? " \u00e9" : "x";
    }
    const auto tokens = read(prompt, prompt_bounds(*text, "prompt"));
    EXPECT_EQ(std::get<0>(tokens), tokenizer().encode(prompt, text::SpecialTokens::kNone).value());
    EXPECT_EQ(steps, 1);
  }
}

TEST_F(TextReadings, OfALongTextItsSlicesAreCountedFirst) {
  std::string prompt;  // "<eos>" is one token of five bytes.
  while (prompt.size() < 900'000) {
    prompt += "<eos>";
  }
  EXPECT_EQ(std::get<0>(read(prompt, prompt_bounds(*text, "prompt"))).size(), 180'000U);
  EXPECT_GT(steps, 10);
  prompt.assign(900'000, 'x');
  const auto longer = read(prompt, prompt_bounds(*text, "prompt"));
  EXPECT_THAT(error(longer).message, HasSubstr("more than 200000 tokens"));
  EXPECT_EQ(error(longer).code, "context_length_exceeded");
  EXPECT_LT(steps, 6);
}

TEST_F(TextReadings, WhatCannotFitIsNotRead) {
  const auto refused = read(std::string(1'000'001, 'x'), prompt_bounds(*text, "prompt"));
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(error(refused).param, "prompt");
  EXPECT_EQ(error(refused).code, "context_length_exceeded");
  EXPECT_THAT(error(refused).message, HasSubstr("prompt: is 1000001 bytes long"));
  EXPECT_THAT(error(refused).message, HasSubstr("at most 1000000 bytes"));
  EXPECT_THAT(error(refused).message, HasSubstr("context is 200000 tokens"));
}

TEST_F(TextReadings, ToTokeniseAloneTwiceTheContextWillDo) {
  const TextBounds bounds = tokenize_bounds(*text, "prompt");
  EXPECT_EQ(std::get<0>(read(std::string(390'000, 'x'), bounds)).size(), 390'000U);
  EXPECT_EQ(error(read(std::string(600'000, 'x'), bounds)).status, 400);
  const auto little = open_model_text(files.directory(), 16).value();
  const TextBounds small = tokenize_bounds(*little, "prompt");
  EXPECT_EQ(std::get<0>(read(std::string(262'144, 'x'), small)).size(), 262'144U);
  EXPECT_EQ(error(read(std::string(262'145, 'x'), small)).status, 400);
}

TEST_F(TextReadings, PromptsComeOneAfterTheOther) {
  const std::vector<api::Prompt> prompts = {
      "ab", std::vector<TokenId>{1, 2, 3}, std::string(70'000, 'x'), "c"};
  PromptsReading reading(
      prompts, tokenizer(), text::SpecialTokens::kNone, prompt_bounds(*text, "prompt"), true);
  int count = 1;
  for (; !reading.step(); ++count) {
  }
  EXPECT_EQ(count, 2);  // The third is enough for a step.
  ASSERT_FALSE(reading.error());
  const auto tokens = reading.take_tokens();
  ASSERT_EQ(tokens.size(), 4U);
  EXPECT_EQ(tokens[1], (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(tokens[3], (std::vector<TokenId>{'c'}));
  EXPECT_EQ(reading.take_echo()[0], "ab");
}

TEST_F(TextReadings, OnePromptThatCannotFitIsToldBeforeTheOthersAreRead) {
  const std::vector<api::Prompt> prompts = {"ab", std::string(1'000'001, 'x')};
  const PromptsReading reading(
      prompts, tokenizer(), text::SpecialTokens::kNone, prompt_bounds(*text, "input"));
  ASSERT_TRUE(reading.error());
  EXPECT_EQ(reading.error()->param, "input");
}

}  // namespace
}  // namespace heddle::gateway
