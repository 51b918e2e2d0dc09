#include "gguf/gguf_encoder.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/gguf_model.h"
#include "gguf/gguf_text.h"
#include "gguf/test_gguf.h"
#include "spec/operations.h"

namespace heddle::gguf {
namespace {

using testing::HasSubstr;
using testing::Not;

class GgufEncoderTest : public testing::Test {
 protected:
  /// A file of the architecture "bert" with eight pieces of words.
  static TestGguf encoder(const char* sixth = "s", const char* seventh = "\u2581a") {
    TestGguf file;
    file.text("general.architecture", "bert")
        .u32("bert.embedding_length", 16)
        .u32("bert.attention.head_count", 4)
        .u32("bert.block_count", 2)
        .u32("bert.feed_forward_length", 24)
        .u32("bert.context_length", 12)
        .f32("bert.attention.layer_norm_epsilon", 1e-6F)
        .text("tokenizer.ggml.model", "bert")
        .texts("tokenizer.ggml.tokens",
               {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581loom", sixth, seventh, "[x"})
        .zeros("token_embd.weight", {16, 8})
        .zeros("position_embd.weight", {16, 14})
        .zeros("token_types.weight", {16, 2});
    return file;
  }
  GgufFile opened(const TestGguf& file) {
    write_text(directory_.path() / "m.gguf", file.bytes());
    return GgufFile::open(directory_.path() / "m.gguf", Keep::kAll).value();
  }
  Result<TextFiles> texts(const TestGguf& file) {
    write_text(directory_.path() / "m.gguf", file.bytes());
    return text_files(directory_.path() / "m.gguf");
  }
  std::string fault(const TestGguf& file) {
    const Result<TextFiles> read = texts(file);
    return read ? "" : read.error().message;
  }

  TempDirectory directory_{};
};

TEST_F(GgufEncoderTest, IsABertModelAsLargeAsItsTables) {
  const spec::ModelSpec model = model_spec(opened(encoder())).value();
  EXPECT_EQ(model.architecture, spec::Architecture::kBert);
  EXPECT_TRUE(spec::is_encoder(model));
  EXPECT_EQ(model.vocab, 8);
  EXPECT_EQ(model.max_position, 14);
  EXPECT_EQ(model.encoder.types, 2);
  EXPECT_EQ(model.intermediate, 24);
  EXPECT_FLOAT_EQ(static_cast<float>(model.rms_eps), 1e-6F);
  EXPECT_THAT(fault(encoder().flag("bert.attention.causal", true)),
              HasSubstr("key \"bert.attention.causal\" is true; only encoders are built in"));
}

TEST_F(GgufEncoderTest, ScoresWithAHeadOfOneLabel) {
  TestGguf scoring = encoder();
  scoring.zeros("cls.output.weight", {16}).zeros("cls.output.bias", {1});
  const spec::ModelSpec bare = model_spec(opened(scoring)).value();
  EXPECT_TRUE(bare.encoder.scores);
  EXPECT_TRUE(bare.encoder.bare);
  scoring.zeros("cls.weight", {16, 16}).zeros("cls.bias", {16}).u32("bert.pooling_type", 4);
  const spec::ModelSpec model = model_spec(opened(scoring)).value();
  EXPECT_TRUE(model.encoder.scores);
  EXPECT_FALSE(model.encoder.bare);
  EXPECT_FALSE(texts(scoring).value().contains("1_Pooling/config.json"));
  EXPECT_THAT(fault(encoder().zeros("cls.output.weight", {16, 3})),
              HasSubstr("tensor \"cls.output.weight\" is of 3 labels; only models that score"));
  EXPECT_THAT(fault(encoder().zeros("cls.weight", {16, 1})),
              HasSubstr("there is \"cls.weight\" without \"cls.output.weight\"; only heads"));
  EXPECT_THAT(
      fault(encoder().u32("bert.pooling_type", 4)),
      HasSubstr("key \"bert.pooling_type\" is 4; there is no tensor \"cls.output.weight\""));
}

TEST_F(GgufEncoderTest, SaysHowTextsBecomeVectors) {
  const auto pooling = [this](std::uint32_t type) {
    return texts(encoder().u32("bert.pooling_type", type)).value().at("1_Pooling/config.json");
  };
  EXPECT_THAT(pooling(1), HasSubstr("\"mean\""));
  EXPECT_THAT(pooling(2), HasSubstr("\"cls\""));
  EXPECT_THAT(pooling(3), HasSubstr("\"lasttoken\""));
  const TextFiles silent = texts(encoder()).value();
  EXPECT_FALSE(silent.contains("1_Pooling/config.json"));
  EXPECT_THAT(silent.at("modules.json"), HasSubstr("Normalize"));
  EXPECT_THAT(silent.at("sentence_bert_config.json"), HasSubstr("12"));
  EXPECT_THAT(fault(encoder().u32("bert.pooling_type", 5)),
              HasSubstr("key \"bert.pooling_type\" is 5; built in are 1 (mean), 2 (cls) and 3"));
  EXPECT_FALSE(texts(small_model().u32("llama.pooling_type", 1)).has_value()) << "no tokenizer";
}

TEST_F(GgufEncoderTest, MarksPiecesAsBertDoes) {
  const std::string json = texts(encoder()).value().at("tokenizer.json");
  EXPECT_THAT(json, HasSubstr(R"("[CLS]":2,"[SEP]":3,"loom":4,"##s":5,"a":6,"##[x":7)"));
  EXPECT_THAT(json, HasSubstr(R"("single":[{"SpecialToken":{"id":"[CLS]","type_id":0}})"));
  EXPECT_THAT(json, Not(HasSubstr("\u2581")));
  TestGguf twice = encoder("a", "\u2581##a");
  EXPECT_THAT(fault(twice), HasSubstr("tokens 5 and 6 are the same piece"));
  EXPECT_THAT(fault(encoder().u32("tokenizer.ggml.cls_token_id", 8)),
              HasSubstr("key \"tokenizer.ggml.cls_token_id\" is 8; tokens are 0 to 7"));
}

/// A file whose tokens are those of RoBERTa, or XLM-RoBERTa.
TestGguf of_roberta(const std::string& kind,
                    const std::vector<float>& scores,
                    const std::vector<std::uint8_t>& table = {4, 0, 0, 0, 0, 0, 0, 255, 97, 0}) {
  TestGguf file;
  file.text("general.architecture", "bert")
      .u32("bert.embedding_length", 16)
      .u32("bert.attention.head_count", 4)
      .u32("bert.block_count", 1)
      .u32("bert.feed_forward_length", 24)
      .text("tokenizer.ggml.model", kind)
      .text("tokenizer.ggml.pre", "roberta-bpe")
      .texts("tokenizer.ggml.tokens", {"<s>", "<pad>", "</s>", "<unk>", "a", "b", "ab"})
      .texts("tokenizer.ggml.merges", {"a b"})
      .numbers("tokenizer.ggml.scores", ValueType::kF32, scores)
      .numbers<std::int32_t>("tokenizer.ggml.token_type", ValueType::kI32, {3, 3, 3, 2, 1, 1, 1})
      .numbers<std::uint8_t>("tokenizer.ggml.precompiled_charsmap", ValueType::kU8, table)
      .zeros("token_embd.weight", {16, 7})
      .zeros("position_embd.weight", {16, 14})
      .zeros("token_types.weight", {16});  // As one row is left by programs that quantise.
  return file;
}

TEST_F(GgufEncoderTest, OfRobertasTokensStandsBetweenItsOwn) {
  const std::vector<float> scores{0, 0, 0, 0, -1.5, -2, -3};
  for (const char* kind : {"gpt2", "t5"}) {
    EXPECT_THAT(texts(of_roberta(kind, scores)).value().at("tokenizer.json"),
                HasSubstr(R"({"SpecialToken":{"id":"</s>","type_id":0}},)"
                          R"({"SpecialToken":{"id":"</s>","type_id":0}},)"
                          R"({"Sequence":{"id":"B","type_id":0}})"));
  }
  EXPECT_EQ(model_spec(opened(of_roberta("t5", scores))).value().encoder.types, 1);
  const std::string json = texts(of_roberta("t5", scores)).value().at("tokenizer.json");
  EXPECT_THAT(json, HasSubstr(R"("type":"Unigram","unk_id":3,"byte_fallback":false)"));
  EXPECT_THAT(json, HasSubstr(R"(["</s>",0],["<unk>",0],["a",-1.5],["b",-2],["ab",-3]])"));
  EXPECT_THAT(json, HasSubstr(R"("precompiled_charsmap":"BAAAAAAAAP9hAA==")"));
  for (const std::vector<std::uint8_t>& table : {std::vector<std::uint8_t>{1},
                                                 {0, 0, 0, 0, 97, 0},
                                                 {6, 0, 0, 0, 1, 2, 3, 4, 5, 6},
                                                 {8, 0, 0, 0, 1, 2, 3, 4},
                                                 {252, 255, 255, 255, 1, 2, 3, 4}}) {
    EXPECT_THAT(fault(of_roberta("t5", scores, table)),
                HasSubstr("precompiled_charsmap\" is an array of"));
  }
  EXPECT_THAT(fault(of_roberta("t5", {0, 0})), HasSubstr("it must be an array of 7 numbers"));
  EXPECT_THAT(fault(of_roberta("t5", {0, 0, 0, 0, -1, -2, std::numeric_limits<float>::infinity()})),
              HasSubstr("key \"tokenizer.ggml.scores\" is an array of 7 f32; it must be"));
}

}  // namespace
}  // namespace heddle::gguf
