#include "spec/config_hybrid.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/config_json.h"
#include "spec/memory_needs.h"
#include "spec/operations.h"
#include "spec/pipe_stage.h"
#include "spec/shard.h"

namespace heddle::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kQwen35Text = R"({
    "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true,
    "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
    "hidden_act": "silu", "hidden_size": 2048, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
    "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1,
    "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
    "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "shared_expert_intermediate_size": 512, "vocab_size": 248320, "mamba_ssm_dtype": "float32",
    "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
      "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}})";

/// Qwen3.5-35B-A3B, for text and images.
ModelSpec qwen35_moe() {
  return parse_model_config(R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"],
      "model_type": "qwen3_5_moe", "tie_word_embeddings": false, "image_token_id": 248056,
      "vision_config": {"depth": 27}, "text_config": )" +
                                std::string(kQwen35Text) + "}",
                            "config.json")
      .value();
}

/// A small hybrid of that architecture, without a brace at its end.
std::string small_hybrid(std::string_view architecture) {
  return R"({"architectures": [")" + std::string(architecture) + R"("], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "head_dim": 32)";
}

ModelSpec hybrid_model(std::string_view architecture, std::string_view more = "") {
  const auto model = parse_model_config(small_hybrid(architecture) + std::string(more) + "}", "c");
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : ModelSpec{};
}

std::string hybrid_fault(std::string_view more) {
  const auto model =
      parse_model_config(small_hybrid("Qwen3NextForCausalLM") + std::string(more) + "}", "c");
  return model ? "accepted" : model.error().message;
}

TEST(ConfigHybrid, Qwen35WithExpertsAsPublished) {
  const ModelSpec model = qwen35_moe();
  EXPECT_EQ(model.architecture, Architecture::kQwen35Moe);
  EXPECT_EQ(model.linear,
            (LinearAttention{.key_heads = 16,
                             .value_heads = 32,
                             .key_dim = 128,
                             .value_dim = 128,
                             .kernel = 4,
                             .gates_apart = true}));
  EXPECT_EQ(model.mixer[0], Mixer::kDeltaRule);
  EXPECT_EQ(model.mixer[2], Mixer::kDeltaRule);
  EXPECT_EQ(model.mixer[3], Mixer::kAttention);
  EXPECT_EQ(std::ranges::count(model.mixer, Mixer::kAttention), 10);
  EXPECT_EQ(rotary_dim(model), 64);
  EXPECT_TRUE(model.attention_gate && model.qk_norm && model.norm_less_one);
  EXPECT_EQ(model.experts,
            (Experts{.count = 256, .active = 8, .intermediate = 512, .normalised = true}));
  EXPECT_EQ(model.intermediate, 512);
  EXPECT_EQ(model.rope_theta, 1e7);
  EXPECT_THAT(model.eos, ElementsAre(248044));
  EXPECT_EQ(model.stored_dtype, DType::kBf16);
}

TEST(ConfigHybrid, AStateIsLargeAndItsKvIsSmall) {
  const ModelSpec model = qwen35_moe();
  // 30 layers: 32 matrices of 128 by 128, and three positions of 8,192 channels.
  EXPECT_EQ(state_bytes(model), 30U * 4 * (32 * 128 * 128 + 3 * 8192));
  EXPECT_EQ(kv_bytes_per_token(model, DType::kBf16), 10U * 2 * 2 * 256 * 2);
  EXPECT_EQ(kv_bytes(model, DType::kBf16, 100),
            100 * kv_bytes_per_token(model, DType::kBf16) + state_bytes(model));
  EXPECT_EQ(kv_bytes(model, DType::kBf16, 0), 0U);
  EXPECT_NEAR(static_cast<double>(parameter_count(model)), 34.66e9, 0.01e9);
}

TEST(ConfigHybrid, FamiliesHaveTheirOwnDefaults) {
  const ModelSpec next = hybrid_model("Qwen3NextForCausalLM", R"(, "norm_topk_prob": false)");
  EXPECT_EQ(next.experts,
            (Experts{.count = 512, .active = 10, .intermediate = 512, .normalised = false}));
  EXPECT_EQ(next.intermediate, 512);
  const ModelSpec moe =
      hybrid_model("Qwen3_5MoeForCausalLM", R"(, "norm_topk_prob": false, "num_experts": 8)");
  EXPECT_EQ(moe.experts,
            (Experts{.count = 8, .active = 8, .intermediate = 512, .normalised = true}));
  LinearAttention sizes = qwen35_moe().linear;
  EXPECT_TRUE(std::exchange(sizes.gates_apart, false));
  EXPECT_EQ(next.linear, sizes);
}

TEST(ConfigHybrid, LayersAreSaidOrComeByTheInterval) {
  EXPECT_THAT(hybrid_model("Qwen3NextForCausalLM").mixer,
              ElementsAre(Mixer::kDeltaRule,
                          Mixer::kDeltaRule,
                          Mixer::kDeltaRule,
                          Mixer::kAttention,
                          Mixer::kDeltaRule));
  const auto said = hybrid_model("Qwen3_5MoeForCausalLM", R"(, "layer_types": ["full_attention",
      "linear_attention", "full_attention", "full_attention", "linear_attention"])");
  EXPECT_THAT(said.mixer,
              ElementsAre(Mixer::kAttention,
                          Mixer::kDeltaRule,
                          Mixer::kAttention,
                          Mixer::kAttention,
                          Mixer::kDeltaRule));
  const auto none = hybrid_model("Qwen3_5ForCausalLM", R"(, "full_attention_interval": 1)");
  EXPECT_FALSE(has_states(none));
  EXPECT_EQ(state_bytes(none), 0U);
  EXPECT_EQ(none.intermediate, 128);
}

TEST(ConfigHybrid, HowMuchOfAHeadRotatesIsSaidWithinOrOutside) {
  constexpr std::string_view kName = "Qwen3_5MoeForCausalLM";
  EXPECT_EQ(rotary_dim(hybrid_model(kName)), 8);
  EXPECT_EQ(rotary_dim(hybrid_model(kName, R"(, "partial_rotary_factor": 0.5)")), 16);
  EXPECT_EQ(rotary_dim(hybrid_model(kName, R"(, "partial_rotary_factor": 0.5,
      "rope_parameters": {"rope_theta": 100, "partial_rotary_factor": 1.0})")),
            32);
  EXPECT_THAT(hybrid_fault(R"(, "partial_rotary_factor": 0.1)"),
              HasSubstr("3 of 32 elements of a head cannot rotate in pairs"));
}

TEST(ConfigHybrid, RejectsWhatIsNotBuiltIn) {
  EXPECT_THAT(hybrid_fault(R"(, "num_experts": 8)"),
              HasSubstr("a token cannot take 10 of 8 experts"));
  EXPECT_THAT(hybrid_fault(R"(, "attention_bias": true)"), HasSubstr("attention_bias"));
  EXPECT_THAT(hybrid_fault(R"(, "attn_output_gate": false)"), HasSubstr("only gated attention"));
  EXPECT_THAT(hybrid_fault(R"(, "layer_types": ["sliding_attention"])"), HasSubstr("layer_types"));
  EXPECT_THAT(hybrid_fault(R"(, "full_attention_interval": 6)"),
              HasSubstr("a layer at least must be \"full_attention\""));
  EXPECT_THAT(hybrid_fault(R"(, "linear_num_value_heads": 24)"),
              HasSubstr("a multiple of linear_num_key_heads, which is 16"));
  EXPECT_THAT(hybrid_fault(R"(, "linear_key_head_dim": 512)"), HasSubstr("linear_key_head_dim"));
}

TEST(ConfigHybrid, OnlyWholeModelsHaveStates) {
  const ModelSpec model = qwen35_moe();
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  const auto divided = divides(model, 2);
  ASSERT_FALSE(divided);
  EXPECT_THAT(divided.error().message, HasSubstr("only whole models have linear attention"));
  const auto cut = cut_layers(model, DType::kBf16, 2);
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message, HasSubstr("only whole models have linear attention"));
}

}  // namespace
}  // namespace heddle::spec
