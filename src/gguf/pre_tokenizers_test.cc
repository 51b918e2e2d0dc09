#include "gguf/pre_tokenizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/json.h"

namespace heddle::gguf {
namespace {

TEST(PreTokenizers, AreKnownByName) {
  ASSERT_NE(find_pre_tokenizer("llama-bpe"), nullptr);
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe")->whole_tokens);
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe")->begins);
  EXPECT_TRUE(find_pre_tokenizer("qwen2")->composes);
  EXPECT_EQ(find_pre_tokenizer("other"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
  EXPECT_THAT(known_pre_tokenizers(), testing::StartsWith("default, gpt-2, llama-bpe, "));
}

TEST(PreTokenizers, AreWrittenAsTheLibraryReadsThem) {
  EXPECT_EQ(
      pre_tokenizer_json(*find_pre_tokenizer("smollm")),
      R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})");
  const std::string coder = pre_tokenizer_json(*find_pre_tokenizer("deepseek-coder"));
  EXPECT_THAT(coder,
              testing::HasSubstr(R"({"type":"Split","pattern":{"Regex":"[\\r\\n]"},)"
                                 R"("behavior":"Isolated","invert":false})"));
  EXPECT_TRUE(spec::parse_json(coder, "m"));
}

}  // namespace
}  // namespace heddle::gguf
