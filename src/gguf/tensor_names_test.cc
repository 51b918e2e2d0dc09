#include "gguf/tensor_names.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/test_gguf.h"

namespace heddle::gguf {
namespace {

using enum spec::Architecture;
using Names = std::vector<std::pair<std::string, std::string>>;

void expect_both_ways(spec::Architecture architecture, const Names& names) {
  for (const auto& [file, directory] : names) {
    EXPECT_EQ(directory_name(file, architecture), directory);
    EXPECT_EQ(tensor_name(directory, architecture), file);
  }
}

TEST(TensorNames, GoBothWays) {
  expect_both_ways(kLlama,
                   {{"token_embd.weight", "model.embed_tokens.weight"},
                    {"output_norm.weight", "model.norm.weight"},
                    {"output.weight", "lm_head.weight"},
                    {"blk.11.attn_q.bias", "model.layers.11.self_attn.q_proj.bias"},
                    {"blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight"},
                    {"blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
                    {"blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"}});
  for (const char* unknown : {"blk.x.attn_q.weight",
                              "blk.1.other.weight",
                              "blk.",
                              "rope_freqs.weight",
                              "",
                              "output",
                              "blk.2"}) {
    EXPECT_EQ(directory_name(unknown, kLlama), unknown);
  }
}

TEST(TensorNames, OfEncodersAreBerts) {
  expect_both_ways(
      kBert,
      {{"token_embd.weight", "embeddings.word_embeddings.weight"},
       {"position_embd.weight", "embeddings.position_embeddings.weight"},
       {"token_types.weight", "embeddings.token_type_embeddings.weight"},
       {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
       {"cls.bias", "pooler.dense.bias"},
       {"cls.output.weight", "classifier.weight"},
       {"blk.2.attn_q.bias", "encoder.layer.2.attention.self.query.bias"},
       {"blk.2.attn_output_norm.bias", "encoder.layer.2.attention.output.LayerNorm.bias"},
       {"blk.11.ffn_up.weight", "encoder.layer.11.intermediate.dense.weight"},
       {"blk.0.layer_output_norm.weight", "encoder.layer.0.output.LayerNorm.weight"}});
}

TEST(TensorNames, OfLinearAttentionAreThoseOfStateSpaces) {
  expect_both_ways(
      kQwen35,
      {{"blk.0.attn_qkv.weight", "model.layers.0.linear_attn.in_proj_qkv.weight"},
       {"blk.0.attn_gate.weight", "model.layers.0.linear_attn.in_proj_z.weight"},
       {"blk.0.ssm_alpha.weight", "model.layers.0.linear_attn.in_proj_a.weight"},
       {"blk.0.ssm_beta.weight", "model.layers.0.linear_attn.in_proj_b.weight"},
       {"blk.0.ssm_a", "model.layers.0.linear_attn.A_log"},
       {"blk.0.ssm_dt.bias", "model.layers.0.linear_attn.dt_bias"},
       {"blk.0.ssm_conv1d.weight", "model.layers.0.linear_attn.conv1d.weight"},
       {"blk.0.ssm_norm.weight", "model.layers.0.linear_attn.norm.weight"},
       {"blk.0.ssm_out.weight", "model.layers.0.linear_attn.out_proj.weight"},
       {"blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight"},
       {"blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"}});
}

TEST(TensorNames, OfGemma4AreByTheirPlace) {
  expect_both_ways(
      kGemma4,
      {{"blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"},
       {"blk.0.post_ffw_norm.weight", "model.layers.0.post_feedforward_layernorm.weight"},
       {"blk.0.post_ffw_norm_1.weight", "model.layers.0.post_feedforward_layernorm_1.weight"},
       {"blk.0.pre_ffw_norm_2.weight", "model.layers.0.pre_feedforward_layernorm_2.weight"},
       {"blk.0.ffn_gate_inp.weight", "model.layers.0.router.proj.weight"},
       {"blk.0.ffn_gate_inp.scale", "model.layers.0.router.scale"},
       {"blk.0.ffn_down_exps.scale", "model.layers.0.router.per_expert_scale"},
       {"blk.0.ffn_down_exps.weight", "model.layers.0.experts.0.down_proj.weight"},
       {"blk.0.layer_output_scale.weight", "model.layers.0.layer_scalar"}});
}

TEST(TensorNames, OfQwen3NextAreByKeyHeadInPart) {
  expect_both_ways(kQwen3Next,
                   {{"blk.0.attn_qkv.weight", "model.layers.0.linear_attn.in_proj_qkv.weight"},
                    {"blk.0.attn_gate.weight", "model.layers.0.linear_attn.in_proj_z.weight"},
                    {"blk.0.ssm_in.weight", "model.layers.0.linear_attn.in_proj_qkvz.weight"},
                    {"blk.0.ssm_ba.weight", "model.layers.0.linear_attn.in_proj_ba.weight"}});
}

TEST(TensorNames, OfLayersThatGuessFurtherTokensAreLeftOut) {
  const TempDirectory directory;
  const auto path = directory.path() / "m.gguf";
  const auto names_of = [&](std::uint32_t guessing) {
    write_text(path,
               TestGguf()
                   .text("general.architecture", "qwen35")
                   .u32("qwen35.block_count", 3)
                   .u32("qwen35.nextn_predict_layers", guessing)
                   .zeros("blk.1.attn_norm.weight", {4})
                   .zeros("blk.2.attn_norm.weight", {4})
                   .zeros("blk.20.attn_norm.weight", {4})
                   .bytes());
    std::vector<std::string> names;
    for (const DirectoryTensor& tensor :
         directory_tensors(GgufFile::open(path, Keep::kSmall).value())) {
      names.push_back(tensor.name);
    }
    return names;
  };
  EXPECT_THAT(names_of(1),
              testing::UnorderedElementsAre("model.layers.1.input_layernorm.weight",
                                            "model.layers.20.input_layernorm.weight"));
  EXPECT_EQ(names_of(0).size(), 3U);
}

TEST(TensorNames, OfExpertsAreByFamily) {
  expect_both_ways(kQwen3Moe,
                   {{"blk.1.ffn_gate_inp.weight", "model.layers.1.mlp.gate.weight"},
                    {"blk.1.ffn_up_exps.weight", "model.layers.1.mlp.experts.0.up_proj.weight"}});
  expect_both_ways(
      kMixtral,
      {{"blk.1.ffn_gate_inp.weight", "model.layers.1.block_sparse_moe.gate.weight"},
       {"blk.1.ffn_down_exps.weight", "model.layers.1.block_sparse_moe.experts.0.w2.weight"},
       {"blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight"}});
  expect_both_ways(
      kQwen2Moe,
      {{"blk.0.ffn_gate_inp_shexp.weight", "model.layers.0.mlp.shared_expert_gate.weight"},
       {"blk.0.ffn_down_shexp.weight", "model.layers.0.mlp.shared_expert.down_proj.weight"}});
  EXPECT_EQ(directory_name("blk.2.ffn_up_exps.weight", kQwen3Moe, 17),
            "model.layers.2.mlp.experts.17.up_proj.weight");
  EXPECT_EQ(tensor_name("model.layers.2.mlp.experts.17.up_proj.weight", kQwen3Moe),
            "blk.2.ffn_up_exps.weight");
  EXPECT_EQ(tensor_name("model.layers.2.mlp.experts.x.up_proj.weight", kQwen3Moe),
            "model.layers.2.mlp.experts.x.up_proj.weight");
}

TEST(TensorNames, OfGptOssHaveSinksAndBiases) {
  expect_both_ways(
      kGptOss,
      {{"blk.1.attn_sinks.weight", "model.layers.1.self_attn.sinks"},
       {"blk.1.ffn_gate_inp.bias", "model.layers.1.mlp.router.bias"},
       {"blk.1.ffn_gate_exps.bias", "model.layers.1.mlp.experts.0.gate_proj.bias"},
       {"blk.1.attn_output.bias", "model.layers.1.self_attn.o_proj.bias"},
       {"blk.1.post_attention_norm.weight", "model.layers.1.post_attention_layernorm.weight"}});
}

TEST(TensorNames, OfGemmasNormsAreTheirOwn) {
  expect_both_ways(
      kGemma3,
      {{"blk.0.post_attention_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
       {"blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"},
       {"blk.0.post_ffw_norm.weight", "model.layers.0.post_feedforward_layernorm.weight"}});
}

class DirectoryTensorsTest : public testing::Test {
 protected:
  GgufFile open(TestGguf file) {
    write_text(path_.path() / "m.gguf", file.bytes());
    return GgufFile::open(path_.path() / "m.gguf", Keep::kSmall).value();
  }
  TempDirectory path_{};
};

TEST_F(DirectoryTensorsTest, AreThoseOfEachExpert) {
  TestGguf file;
  file.text("general.architecture", "qwen3moe");
  file.zeros("blk.0.ffn_up_exps.weight", {8, 4, 3});
  file.zeros("blk.0.ffn_gate_inp_shexp.weight", {8});
  const GgufFile opened = open(std::move(file));
  const std::vector<DirectoryTensor> tensors = directory_tensors(opened);
  ASSERT_EQ(tensors.size(), 4U);
  const Tensor& whole = *opened.tensor("blk.0.ffn_up_exps.weight");
  for (std::size_t expert = 0; expert < 3; ++expert) {
    const DirectoryTensor& part = tensors[expert];
    EXPECT_EQ(part.name,
              "model.layers.0.mlp.experts." + std::to_string(expert) + ".up_proj.weight");
    EXPECT_EQ(part.stored.name, whole.name);
    EXPECT_THAT(part.stored.shape, testing::ElementsAre(4, 8));
    EXPECT_EQ(part.stored.offset, whole.offset + expert * 4 * 8 * sizeof(float));
    EXPECT_EQ(part.stored.bytes, 4 * 8 * sizeof(float));
  }
  EXPECT_THAT(tensors[3].stored.shape, testing::ElementsAre(1, 8));
}

TEST_F(DirectoryTensorsTest, AreGatesAndUpsWhereOneTensorHasBoth) {
  TestGguf file;
  file.text("general.architecture", "qwen3next");
  file.zeros("blk.0.ffn_gate_up_exps.weight", {8, 6, 2});
  file.zeros("blk.1.ffn_gate_up_exps.weight", {8, 5, 2});
  const GgufFile opened = open(std::move(file));
  const std::vector<DirectoryTensor> tensors = directory_tensors(opened);
  ASSERT_EQ(tensors.size(), 6U) << "an odd number of rows is not cut";
  const std::uint64_t begin = opened.tensor("blk.0.ffn_gate_up_exps.weight")->offset;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tensors[i].name,
              "model.layers.0.mlp.experts." + std::to_string(i / 2) +
                  (i % 2 == 0 ? ".gate_proj.weight" : ".up_proj.weight"));
    EXPECT_THAT(tensors[i].stored.shape, testing::ElementsAre(3, 8));
    EXPECT_EQ(tensors[i].stored.offset, begin + i * 3 * 8 * sizeof(float));
    EXPECT_EQ(tensors[i].stored.bytes, 3 * 8 * sizeof(float));
  }
}

TEST_F(DirectoryTensorsTest, OfOneRowAreMatricesAllTheSame) {
  TestGguf file;
  file.text("general.architecture", "bert");
  file.zeros("cls.output.weight", {8}).zeros("token_types.weight", {8});
  file.zeros("cls.output.bias", {1});
  const std::vector<DirectoryTensor> tensors = directory_tensors(open(std::move(file)));
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_THAT(tensors[0].stored.shape, testing::ElementsAre(1, 8));
  EXPECT_THAT(tensors[1].stored.shape, testing::ElementsAre(1, 8));
  EXPECT_THAT(tensors[2].stored.shape, testing::ElementsAre(1));
}

TEST_F(DirectoryTensorsTest, AreTheBiasesOfEachExpert) {
  TestGguf file;
  file.text("general.architecture", "gpt-oss");
  file.zeros("blk.0.ffn_up_exps.bias", {4, 3});
  const GgufFile opened = open(std::move(file));
  const std::vector<DirectoryTensor> tensors = directory_tensors(opened);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[2].name, "model.layers.0.mlp.experts.2.up_proj.bias");
  EXPECT_THAT(tensors[2].stored.shape, testing::ElementsAre(4));
  EXPECT_EQ(tensors[2].stored.offset,
            opened.tensor("blk.0.ffn_up_exps.bias")->offset + 2 * 4 * sizeof(float));
}

TEST_F(DirectoryTensorsTest, OfMoreExpertsThanAnyModelHasStayWhole) {
  TestGguf file;
  file.text("general.architecture", "qwen3moe");
  file.zeros("blk.0.ffn_up_exps.weight", {1, 1, 1025});
  EXPECT_EQ(directory_tensors(open(std::move(file))).size(), 1U);
}

TEST_F(DirectoryTensorsTest, OnlyLlamaHasInterleavedRows) {
  const auto model = [](const std::string& name) {
    TestGguf file;
    file.text("general.architecture", name);
    file.u32(name + ".attention.head_count", 2);
    file.u32(name + ".embedding_length", 8);
    return file;
  };
  const GgufFile llama = open(model("llama"));
  EXPECT_EQ(interleaved_rows(llama, "blk.0.attn_q.weight"), 4);
  EXPECT_EQ(interleaved_rows(llama, "blk.1.attn_k.bias"), 4);
  EXPECT_EQ(interleaved_rows(llama, "blk.0.attn_v.weight"), 0);
  EXPECT_EQ(interleaved_rows(llama, "blk.0.attn_q_norm.weight"), 0);
  EXPECT_EQ(interleaved_rows(open(model("qwen2")), "blk.0.attn_q.weight"), 0);
}

}  // namespace
}  // namespace heddle::gguf
