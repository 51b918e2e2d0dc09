#include "store/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A directory with config.json and weights that agree, until a test changes one of them.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest()
      : tensors_(random_model(tiny_model(), rng_, [](auto) { return StoredType::kF32; })) {}

  Result<Checkpoint> open() {
    write_text(path() / "config.json", config_);
    write_safetensors(path() / "model.safetensors", tensors_);
    return Checkpoint::open(path());
  }
  std::string error() {
    const Result<Checkpoint> checkpoint = open();
    EXPECT_FALSE(checkpoint.has_value());
    return checkpoint ? "" : checkpoint.error().message;
  }
  void change_config(std::string_view from, std::string_view to) {
    const auto at = config_.find(from);
    ASSERT_NE(at, std::string::npos);
    config_.replace(at, from.size(), to);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return directory_.path(); }

  TempDirectory directory_{};
  Rng rng_{3};
  std::string config_{kTinyConfig};
  TestTensors tensors_;
};

TEST_F(CheckpointTest, OpensWhatAgrees) {
  const Result<Checkpoint> checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->config.model.hidden, 24);
  EXPECT_THAT(checkpoint->config.model.eos, ElementsAre(2));
  EXPECT_THAT(checkpoint->unused, IsEmpty());
}

TEST_F(CheckpointTest, GenerationConfigNamesTheEndsOfTurn) {
  write_text(path() / "generation_config.json", R"({"eos_token_id": [7, 8], "top_k": 5})");
  const Result<Checkpoint> checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->config.model.eos, ElementsAre(7, 8));
  EXPECT_EQ(checkpoint->config.generation.top_k, 5);
  write_text(path() / "generation_config.json", R"({"eos_token_id": 50})");
  EXPECT_THAT(error(), HasSubstr("generation_config.json: eos_token_id is 50; token ids"));
}

TEST_F(CheckpointTest, AConfigOfOtherShapeContradictsTheWeights) {
  change_config("\"hidden_size\": 24", "\"hidden_size\": 32");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("tensor \"model.embed_tokens.weight\" in "),
                    HasSubstr("model.safetensors is F32 [50, 24], but config.json wants [50, 32] "
                              "(hidden_size 32, num_attention_heads 4,")));
}

TEST_F(CheckpointTest, AConfigWithMoreLayersContradictsTheWeights) {
  change_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("tensor \"model.layers.2.input_layernorm.weight\" [24] is missing "),
                    HasSubstr("but config.json (3 layers, tie_word_embeddings false) needs it")));
}

TEST_F(CheckpointTest, AFolderOfAGgufFileSaysToGiveTheFile) {
  write_text(path() / "d/m.gguf", "x");
  const auto opened = Checkpoint::open(path() / "d");
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, testing::EndsWith("; give the path of m.gguf itself"));
}

TEST_F(CheckpointTest, AConfigWithFewerLayersContradictsTheWeights) {
  change_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("has tensor \"model.layers.1."),
                    HasSubstr("but config.json says num_hidden_layers 1")));
}

TEST_F(CheckpointTest, ABiasThatTheConfigDeniesContradictsIt) {
  tensors_["model.layers.0.self_attn.k_proj.bias"] = {
      StoredType::kF32, {16}, std::string(64, '\0')};
  EXPECT_THAT(error(),
              HasSubstr("has tensor \"model.layers.0.self_attn.k_proj.bias\", but by "
                        "config.json (architectures, attention_bias, mlp_bias) the model "
                        "has none"));
}

TEST_F(CheckpointTest, AMissingHeadIsAnErrorUnlessTied) {
  tensors_.erase("lm_head.weight");
  EXPECT_THAT(error(), HasSubstr("tensor \"lm_head.weight\" [50, 24] is missing from "));
  change_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_TRUE(open().has_value());
}

TEST_F(CheckpointTest, AHeadOfATiedModelIsNotMentioned) {
  change_config("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  const Result<Checkpoint> checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value());
  EXPECT_THAT(checkpoint->unused, IsEmpty());
}

TEST_F(CheckpointTest, UnknownTensorsAreListed) {
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {StoredType::kF32, {1}, "abcd"};
  tensors_["vision.patch.weight"] = {StoredType::kI64, {1}, "abcdefgh"};
  const Result<Checkpoint> checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->unused, ElementsAre("vision.patch.weight"));
}

TEST_F(CheckpointTest, WeightsOfOtherTypesAreAnError) {
  TestTensor& norm = tensors_.at("model.norm.weight");
  norm = {StoredType::kF64, {24}, std::string(24 * 8, '\0')};
  EXPECT_THAT(error(),
              AllOf(HasSubstr("tensor \"model.norm.weight\" in "),
                    HasSubstr("is F64 [24]; weights must be F32, F16 or BF16")));
}

TEST_F(CheckpointTest, MissingFilesAreNamed) {
  EXPECT_THAT(Checkpoint::open(path()).error().message, HasSubstr("config.json: No such file"));
  write_text(path() / "config.json", config_);
  EXPECT_THAT(Checkpoint::open(path()).error().message, HasSubstr("has neither model.safetensors"));
}

}  // namespace
}  // namespace heddle::store
