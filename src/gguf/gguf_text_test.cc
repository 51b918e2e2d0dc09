#include "gguf/gguf_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/test_gguf.h"
#include "spec/json_view.h"

namespace heddle::gguf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Key;
using testing::Not;

class GgufTextTest : public testing::Test {
 protected:
  [[nodiscard]] Result<TextFiles> files_of(const TestGguf& file) const {
    const std::filesystem::path path = directory_.path() / "m.gguf";
    write_text(path, file.bytes());
    return text_files(path);
  }
  [[nodiscard]] std::string fault(const TestGguf& file) const {
    const Result<TextFiles> files = files_of(file);
    return files ? "accepted" : files.error().message;
  }
  TempDirectory directory_{};
};

constexpr int kNormal = 1;
constexpr int kUnknown = 2;
constexpr int kControl = 3;
constexpr int kUser = 4;
constexpr int kByte = 6;

TestGguf& with_tokens(TestGguf& file,
                      const std::vector<std::string>& tokens,
                      const std::vector<std::int32_t>& types) {
  return file.texts("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.token_type", ValueType::kI32, types);
}

TestGguf byte_level() {
  TestGguf file = small_model();
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "llama-bpe");
  with_tokens(file, {"a", "b", "ab", "<|x|>", "<y>"}, {kNormal, kNormal, kNormal, kControl, kUser});
  file.texts("tokenizer.ggml.merges", {"a b"});
  return file;
}

TEST_F(GgufTextTest, MakesAByteLevelTokenizer) {
  const TextFiles files = files_of(byte_level().u32("tokenizer.ggml.bos_token_id", 3)).value();
  EXPECT_THAT(files,
              ElementsAre(Key("config.json"),
                          Key("generation_config.json"),
                          Key("tokenizer.json"),
                          Key("tokenizer_config.json")));
  const std::string& json = files.at("tokenizer.json");
  ASSERT_TRUE(spec::parse_json(json, "tokenizer.json"));
  EXPECT_THAT(json,
              AllOf(HasSubstr(R"("model":{"type":"BPE")"),
                    HasSubstr(R"("vocab":{"a":0,"b":1,"ab":2,"<|x|>":3,"<y>":4})"),
                    HasSubstr(R"("merges":[["a","b"]])"),
                    HasSubstr(R"("ignore_merges":true)"),
                    HasSubstr(R"({"id":3,"content":"<|x|>","single_word":false,"lstrip":false,)"
                              R"("rstrip":false,"normalized":false,"special":true})"),
                    HasSubstr(R"("normalized":false,"special":false})"),
                    HasSubstr(R"("normalizer":null)")));
  EXPECT_EQ(files.at("tokenizer_config.json"),
            R"({"bos_token":"<|x|>","add_bos_token":true,"add_eos_token":false})");
}

TEST_F(GgufTextTest, TheFileSaysWhetherTextBegins) {
  const TextFiles files =
      files_of(byte_level().flag("tokenizer.ggml.add_bos_token", false)).value();
  EXPECT_THAT(files.at("tokenizer_config.json"), HasSubstr(R"("add_bos_token":false)"));
}

TEST_F(GgufTextTest, TakesAllTemplates) {
  const TextFiles files = files_of(byte_level()
                                       .text("tokenizer.chat_template", "T")
                                       .texts("tokenizer.chat_templates", {"tool_use", "rag"})
                                       .text("tokenizer.chat_template.tool_use", "U"))
                              .value();
  EXPECT_THAT(files.at("tokenizer_config.json"),
              EndsWith(R"("chat_template":[{"name":"default","template":"T"},)"
                       R"({"name":"tool_use","template":"U"}]})"));
}

TestGguf sentence_piece() {
  TestGguf file = small_model();
  file.text("tokenizer.ggml.model", "llama").u32("tokenizer.ggml.unknown_token_id", 0);
  with_tokens(file,
              {"<unk>", "<0x0A>", "▁", "a", "▁a", "aa", "▁aa"},
              {kUnknown, kByte, kNormal, kNormal, kNormal, kNormal, kNormal});
  file.numbers(
      "tokenizer.ggml.scores", ValueType::kF32, std::vector<float>{0, 0, -9, -8, -1, -2, -3});
  return file;
}

// "▁aa" is made of "▁" and "aa", or of "▁a" and "a": both are pairs, and the longer left one goes
// first.
TEST_F(GgufTextTest, MakesTheMergesOfSentencePiece) {
  const TextFiles files = files_of(sentence_piece()).value();
  const std::string& json = files.at("tokenizer.json");
  ASSERT_TRUE(spec::parse_json(json, "tokenizer.json"));
  EXPECT_THAT(json, HasSubstr(R"("merges":[["▁","a"],["a","a"],["▁a","a"],["▁","aa"]])"));
  EXPECT_THAT(json,
              AllOf(HasSubstr(R"("byte_fallback":true)"),
                    HasSubstr(R"("unk_token":"<unk>")"),
                    HasSubstr(R"({"type":"Prepend","prepend":"▁"})"),
                    HasSubstr(R"({"type":"Strip","content":" ","start":1,"stop":0})")));
  EXPECT_THAT(files.at("tokenizer_config.json"), HasSubstr(R"("add_bos_token":true)"));
}

TEST_F(GgufTextTest, NoSpaceIsPutBeforeTextThatWantsNone) {
  const TextFiles files =
      files_of(sentence_piece().flag("tokenizer.ggml.add_space_prefix", false)).value();
  EXPECT_THAT(files.at("tokenizer.json"),
              AllOf(Not(HasSubstr("Prepend")), Not(HasSubstr("Strip"))));
}

TEST_F(GgufTextTest, SaysWhatIsNotBuiltIn) {
  TestGguf file = small_model();
  file.text("tokenizer.ggml.model", "rwkv").texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(
      fault(file),
      HasSubstr("key \"tokenizer.ggml.model\" is \"rwkv\"; built in are gpt2, llama, gemma4, "
                "bert and t5; llama-server serves"));
  file = small_model();
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "viking");
  file.texts("tokenizer.ggml.tokens", {"a"}).texts("tokenizer.ggml.merges", {});
  EXPECT_THAT(fault(file),
              HasSubstr("key \"tokenizer.ggml.pre\" is \"viking\"; known are default, "));
}

TEST_F(GgufTextTest, NamesWhatIsWrong) {
  EXPECT_THAT(fault(small_model()), HasSubstr("key \"tokenizer.ggml.tokens\" is missing"));
  const auto with = [](const std::vector<std::string>& tokens) {
    TestGguf file = small_model();
    file.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", tokens);
    return file;
  };
  EXPECT_THAT(fault(with({"a", "b", "a"})), HasSubstr("tokens 0 and 2 are the same"));
  EXPECT_THAT(fault(with({"a", "\xff"})), HasSubstr("token 1 is not UTF-8"));
  EXPECT_THAT(fault(with({"1", "2", "3", "4", "5", "6", "7", "8", "9"})),
              HasSubstr("is an array of 9 strings; but \"token_embd.weight\" has 8 rows"));
  EXPECT_THAT(fault(with({"a"})), HasSubstr("key \"tokenizer.ggml.merges\" is missing"));
  EXPECT_THAT(fault(with({"a"}).texts("tokenizer.ggml.merges", {"ab"})),
              HasSubstr("\"ab\" is no pair of tokens"));
  EXPECT_THAT(
      fault(
          with({"a"}).texts("tokenizer.ggml.merges", {}).u32("tokenizer.ggml.padding_token_id", 1)),
      HasSubstr("key \"tokenizer.ggml.padding_token_id\" is 1; tokens are 0 to 0"));
  TestGguf types = with({"a"});
  types.numbers("tokenizer.ggml.token_type", ValueType::kI32, std::vector<std::int32_t>{1, 1});
  EXPECT_THAT(fault(types),
              HasSubstr("key \"tokenizer.ggml.token_type\" is an array of 2 i32; there are "
                        "1 tokens"));
  TestGguf scores = small_model();
  scores.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(fault(scores),
              HasSubstr("key \"tokenizer.ggml.scores\" is missing; it must be an array of 1"));
}

}  // namespace
}  // namespace heddle::gguf
