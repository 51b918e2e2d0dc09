#include "spec/config_gemma4.h"

#include <cmath>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/config_json.h"
#include "spec/memory_needs.h"
#include "spec/operations.h"
#include "spec/shard.h"

namespace heddle::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A small one with experts, without a brace at its end.
constexpr std::string_view kSmallGemma4 = R"({"architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 7, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "vocab_size": 100, "sliding_window": 128,
    "max_position_embeddings": 1024, "hidden_size_per_layer_input": 0, "attention_k_eq_v": true,
    "global_head_dim": 32, "num_global_key_value_heads": 2)";
constexpr std::string_view kGemma4Experts = R"(, "enable_moe_block": true, "num_experts": 6,
    "top_k_experts": 2, "moe_intermediate_size": 24)";

Result<ModelSpec> parse_gemma4(std::string_view more) {
  return parse_model_config(std::string(kSmallGemma4) + std::string(more) + "}", "c");
}

ModelSpec gemma4_model(std::string_view more = "") {
  const auto model = parse_gemma4(more);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : ModelSpec{};
}

std::string gemma4_fault(std::string_view more) {
  const auto model = parse_gemma4(more);
  return model ? "" : model.error().message;
}

TEST(ConfigGemma4, ReadsHeadsOfBothKinds) {
  const ModelSpec model = gemma4_model();
  EXPECT_EQ(model.architecture, Architecture::kGemma4);
  EXPECT_THAT(model.window, ElementsAre(128, 128, 128, 128, 128, 0, 0));
  const Heads local = heads_of(model, 0);
  EXPECT_EQ(local.query, 8);
  EXPECT_EQ(local.kv, 4);
  EXPECT_EQ(local.dim, 16);
  for (const std::int64_t layer : {5, 6}) {
    const Heads global = heads_of(model, layer);
    EXPECT_EQ(global.query, 8);
    EXPECT_EQ(global.kv, 2);
    EXPECT_EQ(global.dim, 32);
  }
  EXPECT_EQ(kinds_of_heads(model).size(), 2U);
  EXPECT_EQ(rotary_dim(model, LayerRope::kLocal), 16);
  EXPECT_EQ(rotary_dim(model, LayerRope::kModels), 32);
}

TEST(ConfigGemma4, ReadsItsMathematics) {
  const ModelSpec model = gemma4_model(R"(, "final_logit_softcapping": 30.0)");
  EXPECT_EQ(model.norms, Norms::kAround);
  EXPECT_FALSE(model.norm_less_one);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_TRUE(model.value_norm);
  EXPECT_TRUE(model.keys_are_values);
  EXPECT_TRUE(model.layer_scale);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(attention_scale(model), 1.0F);
  EXPECT_EQ(model.scales.embedding, 8.0);
  EXPECT_EQ(model.scales.logit_cap, 30.0);
  EXPECT_EQ(model.experts.count, 0);
  EXPECT_EQ(cpu_only(model, DType::kBf16), "layers whose heads differ in size");
}

TEST(ConfigGemma4, CountsKeyHeadsApartOnlyWhereTheyAreValues) {
  ModelSpec model =
      parse_model_config(R"({"model_type": "gemma4_text", "hidden_size": 64, "vocab_size": 100,
          "intermediate_size": 96, "num_hidden_layers": 1, "hidden_size_per_layer_input": 0,
          "num_global_key_value_heads": 2})",
                         "c")
          .value();
  EXPECT_FALSE(model.keys_are_values);
  EXPECT_EQ(model.global_kv_heads, 4);
  EXPECT_EQ(model.global_head_dim, 512);
  EXPECT_THAT(model.layer_rope, ElementsAre(LayerRope::kModels));
}

TEST(ConfigGemma4, RotatesByTypeOfLayer) {
  const ModelSpec usual = gemma4_model();
  EXPECT_EQ(usual.rope.kind, RopeKind::kProportional);
  EXPECT_EQ(usual.rope.share, 0.25);
  EXPECT_EQ(usual.rope_theta, 1e6);
  EXPECT_EQ(usual.local_theta, 1e4);
  const ModelSpec said = gemma4_model(R"(, "rope_parameters": {
      "full_attention": {"rope_type": "proportional", "rope_theta": 500.0, "factor": 2.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})");
  EXPECT_EQ(said.rope.kind, RopeKind::kProportional);
  EXPECT_EQ(said.rope.share, 1.0);
  EXPECT_EQ(said.rope.factor, 2.0);
  EXPECT_EQ(said.rope_theta, 500.0);
  EXPECT_EQ(said.local_theta, 100.0);
  EXPECT_THAT(gemma4_fault(R"(, "rope_parameters": {"full_attention": {"rope_type": "yarn"}})"),
              HasSubstr("c: rope_parameters.full_attention.rope_type"));
  EXPECT_THAT(gemma4_fault(R"(, "rope_parameters": {"rope_theta": 5.0})"),
              HasSubstr("c: rope_parameters"));
}

TEST(ConfigGemma4, ReadsExpertsBesideTheMlp) {
  const ModelSpec model = gemma4_model(kGemma4Experts);
  EXPECT_EQ(model.intermediate, 96);
  EXPECT_EQ(
      model.experts,
      (Experts{.count = 6, .active = 2, .intermediate = 24, .normalised = true, .beside = true}));
  EXPECT_THAT(gemma4_fault(R"(, "enable_moe_block": true, "num_experts": 6, "top_k_experts": 7,
                              "moe_intermediate_size": 24)"),
              HasSubstr("c: top_k_experts is 7"));
}

TEST(ConfigGemma4, CountsWeightsAndKvByLayer) {
  const ModelSpec model = gemma4_model(kGemma4Experts);
  // Values of global layers have rows of their own, as keys' rows are there twice.
  constexpr std::int64_t kLocal = (8 + 2 * 4) * 16 * 64 + 64 * 8 * 16 + 2 * 16;
  constexpr std::int64_t kGlobal = (8 + 2 * 2) * 32 * 64 + 64 * 8 * 32 + 2 * 32;
  constexpr std::int64_t kRest =
      3 * (96 + 6 * 24) * 64 + 6 * 64 + (4 + 4) * 64 + 6 + 1;  // Norms, and two kinds of scales.
  EXPECT_EQ(parameter_count(model), 100 * 64 + 64 + 5 * kLocal + 2 * kGlobal + 7 * kRest);
  EXPECT_EQ(kv_bytes_per_token(model, DType::kBf16), (5 * 2 * 4 * 16 + 2 * 2 * 2 * 32) * 2U);
  EXPECT_EQ(kv_bytes(model, DType::kBf16, 1000),
            (5 * 128 * 2 * 4 * 16 + 2 * 1000 * 2 * 2 * 32) * 2U);
}

TEST(ConfigGemma4, IsDividedByBothKindsOfHeads) {
  const ModelSpec model = gemma4_model();
  const ModelSpec half = shard_of(model, {.rank = 1, .ranks = 2});
  EXPECT_EQ(half.kv_heads, 2);
  EXPECT_EQ(half.global_kv_heads, 1);
  const auto quarter = divides(model, 4);
  ASSERT_FALSE(quarter);
  EXPECT_THAT(quarter.error().message, HasSubstr("4 and 2 key-value heads"));
}

TEST(ConfigGemma4, RefusesWhatTheSmallOnesHave) {
  EXPECT_THAT(parse_model_config(R"({"model_type": "gemma4_text", "hidden_size": 64,
                  "intermediate_size": 96, "num_hidden_layers": 1})",
                                 "c")
                  .error()
                  .message,
              HasSubstr("c: hidden_size_per_layer_input"));
  EXPECT_THAT(gemma4_fault(R"(, "num_kv_shared_layers": 2)"),
              HasSubstr("c: num_kv_shared_layers is 2; only 0 is built in"));
  EXPECT_THAT(gemma4_fault(R"(, "use_bidirectional_attention": "all")"),
              HasSubstr("c: use_bidirectional_attention"));
  EXPECT_EQ(gemma4_fault(R"(, "use_bidirectional_attention": "vision")"), "");
}

}  // namespace
}  // namespace heddle::spec
