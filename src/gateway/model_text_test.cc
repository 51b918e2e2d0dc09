#include "gateway/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_model.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

TEST(ModelText, ReadsTokenizerConfigAndDefaults) {
  const TestModel model;
  model.write("generation_config.json", R"({"temperature": 0.5, "top_k": 7})");
  const auto text = open_model_text(model.directory(), 0);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ((*text)->context, 200000);
  EXPECT_EQ((*text)->vocab, 257);
  // Keys and values of 2 layers with 2 heads of 8.
  EXPECT_EQ((*text)->kv_token_bytes(spec::DType::kBf16), 2 * 2 * 2 * 8 * 2U);
  EXPECT_EQ((*text)->kv_token_bytes(spec::DType::kI8), 2 * 2 * 2 * (8 + 2U));
  EXPECT_EQ((*text)->defaults.top_k, 7);
  EXPECT_THAT((*text)->text->eos(), testing::ElementsAre(256));
  EXPECT_EQ((*open_model_text(model.directory(), 64))->context, 64);
}

TEST(ModelText, WhatIsMissingOrBrokenIsNamed) {
  EXPECT_EQ(open_model_text("/no/such/model", 0).error().message,
            "open model: there is no readable config.json");
  const TestModel model;
  model.write("generation_config.json", "{");
  EXPECT_THAT(open_model_text(model.directory(), 0).error().message,
              HasSubstr("generation_config.json"));
  model.write("generation_config.json", "{}");
  std::filesystem::remove(model.directory() / "tokenizer.json");
  EXPECT_THAT(open_model_text(model.directory(), 0).error().message, HasSubstr("tokenizer.json"));
}

TEST(ReadContext, IsThatOfTheFilesUpToTheCap) {
  const TestModel model;
  EXPECT_EQ(read_context(model.directory(), 0), 200'000);
  EXPECT_EQ(read_context(model.directory(), 1'000), 1'000);
  EXPECT_EQ(read_context(model.directory() / "nothing", 0), 0);
}

}  // namespace
}  // namespace heddle::gateway
