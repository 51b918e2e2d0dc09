#include "gateway/whole_texts.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class WholeTextsTest : public testing::Test {
 protected:
  WholeTextsTest() {
    files_.make_encoder(/*scores=*/false);
    model_ = open_model_text(files_.directory(), 0).value();
  }

  WholeTextsReading read(std::vector<WholeText> texts, WholeTextsReading::Bounds bounds) {
    WholeTextsReading reading(std::move(texts), *model_->text->tokenizer(), bounds);
    while (!reading.step()) {
    }
    return reading;
  }

  TestModel files_{};
  std::shared_ptr<const ModelText> model_;
};

TEST_F(WholeTextsTest, PairsAndTextsBecomeTokens) {
  const std::vector<TokenId> given{7, 8, 9, 10, 11};
  WholeTextsReading reading = read({{.first = "ab", .second = "c", .param = "documents[0]"},
                                    {.first = "ab", .param = "input[1]"},
                                    {.tokens = &given, .param = "input[2]"}},
                                   {.tokens = 40});
  ASSERT_FALSE(reading.error());
  const auto encoded = reading.take();
  EXPECT_THAT(encoded[0].tokens, ElementsAre(1, 'a', 'b', 2, 'c', 2));
  EXPECT_EQ(encoded[0].second_text, 4);
  EXPECT_THAT(encoded[1].tokens, ElementsAre(1, 'a', 'b', 2));
  EXPECT_EQ(encoded[2].tokens, given);
}

TEST_F(WholeTextsTest, WhatIsTooLongIsNamedOrCut) {
  const std::string longer(50, 'x');
  const std::vector<WholeText> texts{{.first = "ab", .second = "c", .param = "documents[0]"},
                                     {.first = "ab", .second = longer, .param = "documents[1]"}};
  const WholeTextsReading refused = read(texts, {.tokens = 40});
  ASSERT_TRUE(refused.error());
  EXPECT_EQ(refused.error()->code, "context_length_exceeded");
  EXPECT_THAT(refused.error()->message,
              HasSubstr("documents[1]: is 55 tokens long with its query, but the model takes at "
                        "most 40 tokens"));
  WholeTextsReading cut = read(texts, {.tokens = 10, .cuts = true});
  ASSERT_FALSE(cut.error());
  EXPECT_EQ(cut.take()[1].tokens.size(), 10U);
  const std::string huge(std::size_t{1} << 20U, 'x');
  EXPECT_TRUE(read({{.first = huge, .param = "input[0]"}}, {.tokens = 40}).error());
  WholeTextsReading shortened =
      read({{.first = huge, .param = "input[0]"}}, {.tokens = 40, .cuts = true});
  ASSERT_FALSE(shortened.error());
  EXPECT_EQ(shortened.take()[0].tokens.size(), 40U);
  const auto nothing_left = read({{.first = longer, .second = "c", .param = "documents[0]"}},
                                 {.tokens = 40, .cuts = true});
  EXPECT_EQ(nothing_left.error()->param, "documents[0]");
}

TEST_F(WholeTextsTest, BoundsAreTheModels) {
  const auto bounds = [&](std::optional<std::int64_t> truncate) {
    return bounds_of_whole(*model_, truncate);
  };
  EXPECT_EQ(std::get<0>(bounds(std::nullopt)).tokens, 40);
  EXPECT_FALSE(std::get<0>(bounds(std::nullopt)).cuts);
  EXPECT_EQ(std::get<0>(bounds(-1)).tokens, 40);
  EXPECT_TRUE(std::get<0>(bounds(-1)).cuts);
  EXPECT_EQ(std::get<0>(bounds(8)).tokens, 8);
  EXPECT_EQ(std::get<api::ApiError>(bounds(41)).param, "truncate_prompt_tokens");
}

}  // namespace
}  // namespace heddle::gateway
