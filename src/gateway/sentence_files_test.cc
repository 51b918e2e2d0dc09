#include "gateway/sentence_files.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

class SentenceFilesTest : public testing::Test {
 protected:
  SentenceFilesTest() { std::filesystem::create_directory(model_.directory() / "1_Pooling"); }

  [[nodiscard]] Result<SentenceFiles> read() const {
    return read_sentence_files(text::ModelTexts::open(model_.directory()).value());
  }
  void modules(const std::string& names) const {
    model_.write("modules.json",
                 R"([{"type": "sentence_transformers.models.Transformer"})" + names + "]");
  }

  TestModel model_{};
};

TEST_F(SentenceFilesTest, WithoutFilesTheMeanIsNormalised) {
  const auto files = read();
  ASSERT_TRUE(files);
  EXPECT_EQ(files->pooling, spec::Pooling::kMean);
  EXPECT_TRUE(files->normalised);
  EXPECT_EQ(files->most_tokens, 0);
}

TEST_F(SentenceFilesTest, SayPoolingNormAndLength) {
  model_.write("1_Pooling/config.json",
               R"({"word_embedding_dimension": 32, "pooling_mode_cls_token": true,
                   "pooling_mode_mean_tokens": false})");
  model_.write("sentence_bert_config.json", R"({"max_seq_length": 24})");
  modules(R"(, {"type": "sentence_transformers.models.Pooling"})");
  const auto files = read();
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->pooling, spec::Pooling::kFirst);
  EXPECT_FALSE(files->normalised);
  EXPECT_EQ(files->most_tokens, 24);
  modules(R"(, {"type": "x.Pooling"}, {"type": "x.Normalize"})");
  model_.write("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  EXPECT_TRUE(read()->normalised);
  EXPECT_EQ(read()->pooling, spec::Pooling::kLast);
}

TEST_F(SentenceFilesTest, WhatIsNotBuiltInIsNamed) {
  model_.write("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(read().error().message, HasSubstr("1_Pooling/config.json: pools by \"max\""));
  model_.write("1_Pooling/config.json",
               R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  EXPECT_THAT(read().error().message, HasSubstr("names 2 ways of pooling"));
  model_.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  modules(R"(, {"type": "sentence_transformers.models.Dense"})");
  EXPECT_THAT(read().error().message, HasSubstr("modules.json: has a module \"Dense\""));
  model_.write("modules.json", "{");
  EXPECT_THAT(read().error().message, HasSubstr("modules.json"));
}

}  // namespace
}  // namespace heddle::gateway
