// Families whose layers differ from Llama's: what their config.json says, and what it leaves out.

#include "spec/config_family.h"

#include <cmath>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/config_json.h"

namespace heddle::spec {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// A small config of that architecture, without a brace at its end.
std::string small(std::string_view architecture) {
  return R"({"architectures": [")" + std::string(architecture) + R"("], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100)";
}

ModelSpec small_model(std::string_view architecture, std::string_view more = "") {
  const auto model = parse_model_config(small(architecture) + std::string(more) + "}", "c");
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : ModelSpec{};
}

std::string small_fault(std::string_view architecture, std::string_view more) {
  const auto model = parse_model_config(small(architecture) + std::string(more) + "}", "c");
  return model ? "accepted" : model.error().message;
}

constexpr std::string_view kGemma2Name = "Gemma2ForCausalLM";
constexpr std::string_view kGemma3Name = "Gemma3ForCausalLM";

TEST(ConfigFamily, Gemma2AsPublished) {
  const ModelSpec model = parse_model_config(R"({
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 107], "final_logit_softcapping": 30.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3584, "intermediate_size": 14336, "max_position_embeddings": 8192,
    "model_type": "gemma2", "num_attention_heads": 16, "num_hidden_layers": 42,
    "num_key_value_heads": 8, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
    "sliding_window_size": 4096, "torch_dtype": "bfloat16", "vocab_size": 256000})",
                                             "config.json")
                              .value();
  EXPECT_EQ(model.architecture, Architecture::kGemma2);
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_EQ(model.norms, Norms::kAround);
  EXPECT_TRUE(model.norm_less_one);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_FALSE(model.qk_norm);
  EXPECT_EQ(model.scales,
            (Scales{.embedding = std::sqrt(3584.0),
                    .attention = 1.0 / 16,
                    .attention_cap = 50,
                    .logit_cap = 30}));
  EXPECT_EQ(model.window[0], 4096);
  EXPECT_EQ(model.window[1], 0);
  EXPECT_EQ(model.window[40], 4096);
  EXPECT_TRUE(model.layer_rope.empty());
  EXPECT_THAT(model.eos, ElementsAre(1, 107));
}

TEST(ConfigFamily, Gemma3ForTextAndImagesIsItsText) {
  const ModelSpec model = parse_model_config(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "mm_tokens_per_image": 256, "model_type": "gemma3", "torch_dtype": "bfloat16",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024},
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}})",
                                             "config.json")
                              .value();
  EXPECT_EQ(model.architecture, Architecture::kGemma3);
  EXPECT_EQ(model.heads, 8);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_EQ(model.vocab, 262208);
  EXPECT_EQ(model.max_position, 131072) << "it is the length after stretching";
  EXPECT_EQ(model.stored_dtype, DType::kBf16);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.rope.factor, 8);
  EXPECT_EQ(model.local_theta, 1e4);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.scales.logit_cap, 0);
  EXPECT_EQ(model.window[4], 1024);
  EXPECT_EQ(model.window[5], 0);
  EXPECT_EQ(model.layer_rope[4], LayerRope::kLocal);
  EXPECT_EQ(model.layer_rope[5], LayerRope::kModels);
  EXPECT_THAT(model.eos, ElementsAre(1, 106));
  EXPECT_THAT(parse_model_config(R"({"architectures": ["Gemma3ForConditionalGeneration"]})", "c")
                  .error()
                  .message,
              HasSubstr("text_config is missing"));
}

TEST(ConfigFamily, Gemma3TakesBothSpellingsOfItsRotations) {
  const ModelSpec old =
      small_model(kGemma3Name,
                  R"(, "rope_theta": 5e5, "rope_local_base_freq": 2e4, "sliding_window_pattern": 2,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "sliding_window": null)");
  const ModelSpec now = small_model(kGemma3Name, R"(, "layer_types": ["sliding_attention",
        "full_attention", "sliding_attention", "full_attention"], "sliding_window": 8,
        "rope_parameters": {
          "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
          "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})");
  for (const ModelSpec& model : {old, now}) {
    EXPECT_EQ(model.rope_theta, 5e5);
    EXPECT_EQ(model.local_theta, 2e4);
    EXPECT_EQ(model.rope.kind, RopeKind::kLinear);
    EXPECT_THAT(
        model.layer_rope,
        ElementsAre(LayerRope::kLocal, LayerRope::kModels, LayerRope::kLocal, LayerRope::kModels));
  }
  EXPECT_THAT(old.window, Each(0)) << "a window of nothing hides nothing";
  EXPECT_THAT(now.window, ElementsAre(8, 0, 8, 0));
}

TEST(ConfigFamily, WhatGemmaCouldBeAndIsNotBuiltInIsRefused) {
  EXPECT_THAT(small_fault(kGemma2Name, R"(, "hidden_activation": "silu")"),
              HasSubstr("hidden_activation is \"silu\"; only \"gelu_pytorch_tanh\" is built in"));
  EXPECT_THAT(small_fault(kGemma3Name, R"(, "use_bidirectional_attention": true)"),
              HasSubstr("only models that look back"));
  EXPECT_THAT(small_fault(kGemma3Name,
                          R"(, "rope_parameters": {"sliding_attention": {"rope_type": "yarn"}})"),
              HasSubstr("rope_parameters.sliding_attention.rope_type is \"yarn\"; layers with a"));
  EXPECT_THAT(small_fault(kGemma2Name,
                          R"(, "rope_parameters": {"full_attention": {"rope_type": "default"}})"),
              HasSubstr("one rotary embedding for all layers is built in"));
  EXPECT_EQ(small_model(kGemma2Name, R"(, "attn_logit_softcapping": null)").scales.attention_cap,
            0);
  EXPECT_EQ(small_model(kGemma2Name).scales.attention_cap, 50) << "what an absent key means";
}

TEST(ConfigFamily, GraniteIsLlamaWithMultipliers) {
  const ModelSpec model = small_model("GraniteForCausalLM",
                                      R"(, "embedding_multiplier": 12, "logits_scaling": 8.0,
      "residual_multiplier": 0.22, "attention_multiplier": 0.015625)");
  EXPECT_EQ(model.scales,
            (Scales{.embedding = 12, .attention = 0.015625, .residual = 0.22, .logits = 0.125}));
  EXPECT_EQ(small_model("GraniteForCausalLM").scales.attention, 1.0);
}

TEST(ConfigFamily, Olmo2HasItsNormsBehind) {
  const ModelSpec model = small_model("Olmo2ForCausalLM");
  EXPECT_EQ(model.norms, Norms::kAfter);
  EXPECT_TRUE(model.qk_norm_whole && !model.qk_norm);
  EXPECT_EQ(model.rms_eps, 1e-5);
}

TEST(ConfigFamily, SmolLm3DoesNotRotateEveryLayer) {
  constexpr std::string_view kName = "SmolLM3ForCausalLM";
  EXPECT_THAT(
      small_model(kName).layer_rope,
      ElementsAre(LayerRope::kModels, LayerRope::kModels, LayerRope::kModels, LayerRope::kNone));
  const ModelSpec model =
      small_model(kName, R"(, "no_rope_layers": [0, 1, 1, 0], "use_sliding_window": true,
                  "sliding_window": 9)");
  EXPECT_THAT(
      model.layer_rope,
      ElementsAre(LayerRope::kNone, LayerRope::kModels, LayerRope::kModels, LayerRope::kNone));
  EXPECT_THAT(model.window, ElementsAre(9, 0, 0, 9));
  EXPECT_EQ(model.rope_theta, 2e6);
  EXPECT_THAT(small_fault(kName, R"(, "no_rope_layers": [0, 1, 2, 0])"),
              HasSubstr("no_rope_layers[2] is 2; it must be 0 or 1"));
  EXPECT_THAT(small_fault(kName, R"(, "no_rope_layers": [0, 1])"),
              HasSubstr("no_rope_layers is an array of 2; it must be an array of at least"));
}

constexpr std::string_view kGptOssName = "GptOssForCausalLM";

TEST(ConfigFamily, GptOssHasSinksBiasesAndALimit) {
  const ModelSpec model =
      small_model(kGptOssName, R"(, "num_local_experts": 6, "num_experts_per_tok": 2,
      "swiglu_limit": 5.5, "head_dim": 8, "sliding_window": 9, "rope_scaling": {
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false})");
  EXPECT_TRUE(model.sinks && model.qkv_bias && model.out_bias && !model.mlp_bias);
  EXPECT_EQ(model.experts.count, 6);
  EXPECT_EQ(model.experts.active, 2);
  EXPECT_TRUE(model.experts.normalised && model.experts.biased);
  EXPECT_EQ(model.experts.gate_limit, 5.5);
  EXPECT_EQ(model.experts.gate_gain, 1.702);
  EXPECT_EQ(model.intermediate, 0);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_THAT(model.window, ElementsAre(9, 0, 9, 0)) << "every other layer, from the first on";
  EXPECT_EQ(model.rope.kind, RopeKind::kYarn);
  EXPECT_FALSE(model.rope.truncate);
}

TEST(ConfigFamily, WhatGptOssTakesAbsentKeysFor) {
  const ModelSpec model = small_model(kGptOssName);
  EXPECT_EQ(model.experts.count, 128);
  EXPECT_EQ(model.experts.active, 4);
  EXPECT_EQ(model.experts.gate_limit, 7.0);
  EXPECT_EQ(model.rope_theta, 150000.0);
  EXPECT_EQ(model.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(model.rope.factor, 32.0);
  EXPECT_EQ(model.rope.original_max_position, 4096);
  EXPECT_FALSE(model.rope.truncate);
  EXPECT_EQ(small_model(kGptOssName, R"(, "rope_parameters": {"rope_type": "default"})").rope.kind,
            RopeKind::kDefault);
  EXPECT_THAT(small_fault(kGptOssName, R"(, "swiglu_limit": 0)"), HasSubstr("swiglu_limit"));
  EXPECT_THAT(small_fault(kGptOssName, R"(, "num_experts_per_tok": 200)"),
              HasSubstr("a token cannot take 200 of 128 experts"));
}

TEST(ConfigFamily, Phi3MayRotateInPartAndByFactors) {
  constexpr const char* kName = "Phi3ForCausalLM";
  EXPECT_THAT(small_model(kName, R"(, "sliding_window": 7)").window, Each(7));
  const ModelSpec model = small_model(kName, R"(, "head_dim": 8, "partial_rotary_factor": 0.75,
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
        "rope_scaling": {
          "type": "longrope", "long_factor": [1, 2.5, 4], "short_factor": [1, 1, 1.5]})");
  EXPECT_EQ(model.rotary_dim, 6);
  EXPECT_EQ(model.max_position, 131072);
  EXPECT_EQ(model.rope.kind, RopeKind::kLongRope);
  EXPECT_EQ(model.rope.factor, 32.0);
  EXPECT_EQ(model.rope.original_max_position, 4096);
  EXPECT_THAT(model.rope.factors, ElementsAre(1.0, 2.5, 4.0));
  EXPECT_THAT(model.rope.short_factors, ElementsAre(1.0, 1.0, 1.5));
  const auto wrong = [](const std::string& factors) {
    return small_fault(kName,
                       R"(, "head_dim": 8, "partial_rotary_factor": 0.5, "rope_scaling":
      {"type": "longrope", "short_factor": [1, 1], "long_factor": )" +
                           factors + "}");
  };
  const auto right = HasSubstr("it must be an array of 2 numbers above 0, one for each pair");
  EXPECT_THAT(wrong("null"), AllOf(HasSubstr("rope_scaling.long_factor is null"), right));
  EXPECT_THAT(wrong("[1]"), AllOf(HasSubstr("rope_scaling.long_factor is an array of 1"), right));
  EXPECT_THAT(wrong("[1, 0]"), AllOf(HasSubstr("rope_scaling.long_factor[1] is 0"), right));
  EXPECT_THAT(wrong("[true, 1]"), AllOf(HasSubstr("rope_scaling.long_factor[0] is true"), right));
}

}  // namespace
}  // namespace heddle::spec
