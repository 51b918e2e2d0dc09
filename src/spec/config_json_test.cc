#include "spec/config_json.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A valid config of `architecture` with `extra` members ("," first) behind the common ones.
std::string config(std::string_view architecture, std::string_view extra = "") {
  return R"({"architectures": [")" + std::string(architecture) + R"("], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100,
    "num_key_value_heads": 2)" +
         std::string(extra) + "}";
}

ModelSpec parsed(std::string_view architecture, std::string_view extra = "") {
  const Result<ModelSpec> model = parse_model_config(config(architecture, extra), "config.json");
  EXPECT_TRUE(model.has_value()) << (model ? "" : model.error().message);
  return model ? *model : ModelSpec{};
}

std::string error_of_text(std::string_view text) {
  const Result<ModelSpec> model = parse_model_config(text, "config.json");
  EXPECT_FALSE(model.has_value()) << text;
  return model ? "" : model.error().message;
}

std::string error_of(std::string_view architecture, std::string_view extra) {
  return error_of_text(config(architecture, extra));
}

constexpr std::string_view kLlama = "LlamaForCausalLM";
constexpr std::string_view kMistral = "MistralForCausalLM";
constexpr std::string_view kQwen2 = "Qwen2ForCausalLM";
constexpr std::string_view kQwen3 = "Qwen3ForCausalLM";

TEST(ConfigJson, ReadsAPublishedConfig) {
  const ModelSpec model = parse_model_config(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})",
                                             "config.json")
                              .value();
  EXPECT_EQ(model.architecture, Architecture::kLlama);
  EXPECT_EQ(model.hidden, 2048);
  EXPECT_EQ(model.layers, 16);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.intermediate, 8192);
  EXPECT_EQ(model.vocab, 128256);
  EXPECT_EQ(model.max_position, 131072);
  EXPECT_EQ(model.rms_eps, 1e-5);
  EXPECT_EQ(model.rope_theta, 500000.0);
  EXPECT_EQ(model.rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(model.rope.factor, 32.0);
  EXPECT_EQ(model.rope.low_freq_factor, 1.0);
  EXPECT_EQ(model.rope.high_freq_factor, 4.0);
  EXPECT_EQ(model.rope.original_max_position, 8192);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.stored_dtype, DType::kBf16);
  EXPECT_EQ(model.bos, 128000);
  EXPECT_THAT(model.eos, ElementsAre(128001, 128008, 128009));
  EXPECT_THAT(model.window, Each(0));
  EXPECT_EQ(model.window.size(), 16U);
}

TEST(ConfigJson, FamiliesHaveTheirOwnDefaults) {
  const ModelSpec llama = parsed(kLlama);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.max_position, 2048);
  EXPECT_EQ(llama.rope_theta, 10000.0);
  EXPECT_EQ(llama.rms_eps, 1e-6);
  EXPECT_EQ(llama.stored_dtype, DType::kF32);
  EXPECT_EQ(llama.bos, 1);
  EXPECT_THAT(llama.eos, ElementsAre(2));
  EXPECT_FALSE(llama.tied_embeddings || llama.qkv_bias || llama.out_bias || llama.qk_norm);
  EXPECT_EQ(parsed(kMistral).max_position, 131072);
  const ModelSpec qwen2 = parsed(kQwen2);
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.out_bias && !qwen2.qk_norm);
  EXPECT_EQ(qwen2.bos, -1);
  EXPECT_THAT(qwen2.eos, IsEmpty());
  const ModelSpec qwen3 = parsed(kQwen3);
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
}

TEST(ConfigJson, BiasesFollowTheFamily) {
  const std::string_view on = R"(, "attention_bias": true, "mlp_bias": true)";
  const ModelSpec llama = parsed(kLlama, on);
  EXPECT_TRUE(llama.qkv_bias && llama.out_bias && llama.mlp_bias);
  const ModelSpec mistral = parsed(kMistral, on);
  EXPECT_FALSE(mistral.qkv_bias || mistral.out_bias || mistral.mlp_bias);
  const ModelSpec qwen2 = parsed(kQwen2, on);
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.out_bias && !qwen2.mlp_bias);
  const ModelSpec qwen3 = parsed(kQwen3, on);
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.out_bias && !qwen3.mlp_bias);
}

TEST(ConfigJson, KeyHeadsDefaultToTheFamilyOrToAllHeads) {
  const std::string base = R"({"architectures": ["ARCH"], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": HEADS,
    "vocab_size": 100 EXTRA})";
  const auto kv_heads = [&](std::string_view arch, std::string_view heads, std::string_view extra) {
    std::string text = base;
    text.replace(text.find("ARCH"), 4, arch);
    text.replace(text.find("HEADS"), 5, heads);
    text.replace(text.find("EXTRA"), 5, extra);
    return parse_model_config(text, "config.json");
  };
  EXPECT_EQ(kv_heads(kLlama, "4", "")->kv_heads, 4);
  EXPECT_EQ(kv_heads(kMistral, "16", "")->kv_heads, 8);
  EXPECT_EQ(kv_heads(kMistral, "4", R"(, "num_key_value_heads": null)")->kv_heads, 4);
  EXPECT_EQ(kv_heads(kQwen2, "32", "")->kv_heads, 32);
  EXPECT_THAT(kv_heads(kMistral, "4", "").error().message,
              HasSubstr("num_key_value_heads is missing; 8 must divide num_attention_heads, which "
                        "is 4"));
  EXPECT_THAT(kv_heads(kLlama, "5", "").error().message,
              HasSubstr("head_dim is missing; without it num_attention_heads (5) must divide "
                        "hidden_size (64)"));
}

TEST(ConfigJson, ModelTypeDecidesWhereArchitecturesAreAbsent) {
  const std::string rest = R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100})";
  EXPECT_EQ(parse_model_config(R"({"model_type": "qwen3", )" + rest, "c")->architecture,
            Architecture::kQwen3);
  EXPECT_THAT(error_of_text("{" + rest), HasSubstr("architectures is missing; built in are Llama"));
  EXPECT_THAT(error_of_text(R"({"model_type": "falcon", )" + rest),
              HasSubstr("model_type is \"falcon\"; built in are LlamaForCausalLM, "));
  EXPECT_THAT(error_of(kLlama, R"(, "model_type": "mixtral")"),
              HasSubstr("model_type is \"mixtral\"; with architectures [\"LlamaForCausalLM\"] it "
                        "must be \"llama\""));
}

TEST(ConfigJson, UnknownArchitecturesAreNamedWithAWayOut) {
  EXPECT_THAT(error_of("FalconForCausalLM", ""),
              AllOf(StartsWith("config.json: architectures is [\"FalconForCausalLM\"]; built in "
                               "are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
                               "Qwen3ForCausalLM"),
                    HasSubstr("another engine can serve this model")));
  EXPECT_THAT(error_of_text(R"({"architectures": []})"),
              HasSubstr("architectures is an array of 0"));
  EXPECT_THAT(error_of_text(R"({"architectures": "LlamaForCausalLM"})"),
              HasSubstr("it must be an array of one name"));
}

TEST(ConfigJson, RejectsMathematicsThatIsNotBuiltIn) {
  EXPECT_THAT(error_of(kLlama, R"(, "hidden_act": "gelu")"),
              HasSubstr("hidden_act is \"gelu\"; only \"silu\" is built in; another engine"));
  EXPECT_THAT(error_of(kQwen3, R"(, "num_experts": 64)"),
              HasSubstr("num_experts is 64; a Qwen3ForCausalLM has no experts here"));
  EXPECT_THAT(error_of(kLlama, R"(, "partial_rotary_factor": 0.5)"),
              HasSubstr("partial_rotary_factor is 0.5; only 1"));
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0})"),
              HasSubstr("rope_scaling.type is \"dynamic\"; built in are"));
  EXPECT_THAT(error_of(kQwen2, R"(, "rope_parameters": {"full_attention": {}})"),
              HasSubstr("rope_parameters.full_attention is an object; one rotary embedding"));
  EXPECT_TRUE(parse_model_config(config(kLlama, R"(, "hidden_act": "silu",
      "quantization_config": null, "num_experts": 0, "partial_rotary_factor": 1.0)"),
                                 "c"));
}

TEST(ConfigJson, ReadsExperts) {
  const ModelSpec mixtral = parsed("MixtralForCausalLM", R"(, "num_local_experts": 8)");
  EXPECT_EQ(mixtral.experts,
            (Experts{.count = 8, .active = 2, .intermediate = 128, .normalised = true}));
  EXPECT_EQ(mixtral.intermediate, 0);
  EXPECT_THAT(mixtral.window, Each(0));

  const ModelSpec qwen3 = parsed("Qwen3MoeForCausalLM",
                                 R"(, "num_experts": 16, "num_experts_per_tok": 4,
      "moe_intermediate_size": 24, "norm_topk_prob": true, "mlp_only_layers": [],
      "decoder_sparse_step": 1, "use_sliding_window": false)");
  EXPECT_EQ(qwen3.experts,
            (Experts{.count = 16, .active = 4, .intermediate = 24, .normalised = true}));
  EXPECT_EQ(qwen3.intermediate, 0) << "intermediate_size is of layers without experts";
  EXPECT_TRUE(qwen3.qk_norm);

  const ModelSpec qwen2 =
      parsed("Qwen2MoeForCausalLM", R"(, "shared_expert_intermediate_size": 96)");
  EXPECT_EQ(qwen2.experts,
            (Experts{.count = 60, .active = 4, .intermediate = 1408, .normalised = false}));
  EXPECT_EQ(qwen2.intermediate, 96);
  EXPECT_TRUE(qwen2.qkv_bias);
}

TEST(ConfigJson, ReadsTheWindowsOfModelsWithExperts) {
  EXPECT_THAT(parsed("MixtralForCausalLM", R"(, "sliding_window": 16)").window, Each(16));
  EXPECT_THAT(parsed("Qwen3MoeForCausalLM", R"(, "sliding_window": 16)").window, Each(0));
  EXPECT_THAT(
      parsed("Qwen3MoeForCausalLM", R"(, "use_sliding_window": true, "sliding_window": 16)").window,
      Each(16));
  EXPECT_THAT(
      error_of("Qwen2MoeForCausalLM", R"(, "use_sliding_window": true, "sliding_window": 16)"),
      HasSubstr("layer_types must say which layers"));
}

TEST(ConfigJson, RejectsExpertsThatAreNotBuiltIn) {
  constexpr std::string_view kQwen3Moe = "Qwen3MoeForCausalLM";
  EXPECT_THAT(error_of(kQwen3Moe, R"(, "decoder_sparse_step": 2)"),
              HasSubstr("decoder_sparse_step is 2; only models with experts in every layer"));
  EXPECT_THAT(error_of(kQwen3Moe, R"(, "mlp_only_layers": [0])"),
              HasSubstr("mlp_only_layers is an array of 1; only models with experts in every"));
  EXPECT_THAT(error_of(kQwen3Moe, R"(, "num_experts": 4, "num_experts_per_tok": 5)"),
              HasSubstr("num_experts_per_tok is 5; a token cannot take 5 of 4 experts"));
  EXPECT_THAT(error_of(kQwen3Moe, R"(, "num_experts": 0)"), HasSubstr("num_experts is 0"));
  EXPECT_THAT(error_of(kQwen3Moe, R"(, "num_experts": 1024, "moe_intermediate_size": 5000)"),
              HasSubstr("num_experts is 1024; experts of 5000 are at most 4194304 wide together"));
}

TEST(ConfigJson, RejectsNumbersOutOfRange) {
  const auto with = [](std::string_view key, std::string_view value) {
    // A doubled key would be an error of its own, so the valid one goes.
    std::string text = config(kLlama);
    const std::string quoted = "\"" + std::string(key) + "\"";
    if (const auto at = text.find(quoted); at != std::string::npos) {
      text.replace(at, quoted.size(), "\"was\"");
    }
    text.insert(1, quoted + ": " + std::string(value) + ", ");
    return error_of_text(text);
  };
  EXPECT_THAT(with("hidden_size", "-4"),
              HasSubstr("hidden_size is -4; it must be an integer from 1 to 1048576"));
  EXPECT_THAT(with("hidden_size", "9999999999999999999"),
              HasSubstr("hidden_size is 1e+19; it must"));
  EXPECT_THAT(with("hidden_size", "\"64\""),
              HasSubstr("hidden_size is \"64\"; it must be an integer"));
  EXPECT_THAT(with("hidden_size", "64.5"), HasSubstr("hidden_size is 64.5; it must be an integer"));
  EXPECT_THAT(with("num_hidden_layers", "0"), HasSubstr("num_hidden_layers is 0; it must"));
  EXPECT_THAT(with("num_hidden_layers", "1000000"),
              HasSubstr("num_hidden_layers is 1000000; it must"));
  EXPECT_THAT(with("num_attention_heads", "0"), HasSubstr("num_attention_heads is 0; it must"));
  EXPECT_THAT(with("num_key_value_heads", "0"), HasSubstr("num_key_value_heads is 0; it must"));
  EXPECT_THAT(with("num_key_value_heads", "3"),
              HasSubstr("num_key_value_heads is 3; 3 must divide num_attention_heads, which is 4"));
  EXPECT_THAT(with("head_dim", "15"),
              HasSubstr("head_dim is 15; heads of 15 cannot rotate in pairs"));
  EXPECT_THAT(with("vocab_size", "-1"), HasSubstr("vocab_size is -1; it must"));
  EXPECT_THAT(with("vocab_size", "null"), HasSubstr("vocab_size is null; it must"));
  EXPECT_THAT(with("intermediate_size", "[128]"),
              HasSubstr("intermediate_size is an array of 1; it"));
  EXPECT_THAT(with("max_position_embeddings", "0"),
              HasSubstr("max_position_embeddings is 0; it must"));
  EXPECT_THAT(with("rms_norm_eps", "-1e-6"),
              HasSubstr("rms_norm_eps is -1e-06; it must be a number"));
  EXPECT_THAT(with("rope_theta", "0"), HasSubstr("rope_theta is 0; it must be a number"));
  EXPECT_THAT(with("tie_word_embeddings", "1"),
              HasSubstr("tie_word_embeddings is 1; it must be true"));
  EXPECT_THAT(with("torch_dtype", "\"float8\""),
              HasSubstr("torch_dtype is \"float8\"; it must be"));
  EXPECT_THAT(
      with("eos_token_id", "100"),
      HasSubstr("eos_token_id is 100; token ids are integers from 0 to vocab_size - 1 = 99"));
  EXPECT_THAT(with("eos_token_id", "[1, -2]"), HasSubstr("eos_token_id is -2; token ids"));
  EXPECT_THAT(with("eos_token_id", "\"</s>\""), HasSubstr("eos_token_id is \"</s>\"; token ids"));
}

TEST(ConfigJson, MissingDimensionsAreNamed) {
  for (const char* key : {"hidden_size",
                          "intermediate_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "vocab_size"}) {
    std::string text = config(kLlama);
    text.replace(text.find(key), std::string(key).size(), "other");
    EXPECT_THAT(error_of_text(text), HasSubstr(std::string(key) + " is missing; it must be"))
        << key;
  }
}

TEST(ConfigJson, RejectsWhatIsNoObject) {
  EXPECT_THAT(error_of_text("[]"), HasSubstr("config.json: expected an object, found an array"));
  EXPECT_THAT(error_of_text(""), HasSubstr("config.json: not valid JSON"));
  EXPECT_THAT(error_of(kLlama, R"(, "hidden_size": 64)"),
              HasSubstr("\"hidden_size\" appears twice"));
}

TEST(ConfigJson, ReadsRopeInOldAndNewSpelling) {
  const ModelSpec old_linear =
      parsed(kLlama, R"(, "rope_theta": 5e5, "max_position_embeddings": 512,
      "rope_scaling": {"type": "linear", "factor": 4})");
  EXPECT_EQ(old_linear.rope.kind, RopeKind::kLinear);
  EXPECT_EQ(old_linear.rope.factor, 4.0);
  EXPECT_EQ(old_linear.rope_theta, 5e5);
  EXPECT_EQ(old_linear.max_position, 2048);
  const ModelSpec new_default =
      parsed(kLlama, R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6})");
  EXPECT_EQ(new_default.rope.kind, RopeKind::kDefault);
  EXPECT_EQ(new_default.rope_theta, 1e6);
  EXPECT_EQ(new_default.max_position, 2048);
  // rope_type wins over type, a theta inside over one outside, rope_scaling over rope_parameters.
  const ModelSpec both = parsed(kLlama, R"(, "rope_theta": 7.0,
      "rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2, "rope_theta": 9},
      "rope_parameters": {"rope_type": "default", "rope_theta": 1e6})");
  EXPECT_EQ(both.rope.kind, RopeKind::kLinear);
  EXPECT_EQ(both.rope_theta, 9.0);
  EXPECT_EQ(parsed(kLlama, R"(, "rope_scaling": null)").rope.kind, RopeKind::kDefault);
  EXPECT_EQ(parsed(kLlama, R"(, "rope_scaling": {}, "rope_parameters": {"rope_type": "linear",
      "factor": 2})")
                .rope.kind,
            RopeKind::kLinear);
}

TEST(ConfigJson, ReadsYarn) {
  const ModelSpec plain = parsed(kQwen2, R"(, "max_position_embeddings": 32768,
      "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})");
  EXPECT_EQ(plain.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(plain.rope.original_max_position, 32768);
  EXPECT_EQ(plain.max_position, 131072);
  EXPECT_EQ(plain.rope.beta_fast, 32.0);
  EXPECT_EQ(plain.rope.beta_slow, 1.0);
  EXPECT_EQ(plain.rope.attention_factor, 0.0);
  EXPECT_TRUE(plain.rope.truncate);
  const ModelSpec full = parsed(kLlama, R"(, "max_position_embeddings": 4096, "rope_scaling": {
      "rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 512, "beta_fast": 16,
      "beta_slow": 2, "attention_factor": 1.25, "mscale": 0.7, "mscale_all_dim": 1.0,
      "truncate": false})");
  EXPECT_EQ(full.max_position, 4096);
  EXPECT_EQ(full.rope.original_max_position, 512);
  EXPECT_EQ(full.rope.beta_fast, 16.0);
  EXPECT_EQ(full.rope.beta_slow, 2.0);
  EXPECT_EQ(full.rope.attention_factor, 1.25);
  EXPECT_EQ(full.rope.mscale, 0.7);
  EXPECT_EQ(full.rope.mscale_all_dim, 1.0);
  EXPECT_FALSE(full.rope.truncate);
  // Without a length of its own the context is the one before stretching.
  const ModelSpec bare = parsed(kLlama, R"(, "max_position_embeddings": 100,
      "rope_scaling": {"rope_type": "yarn", "factor": 2.5})");
  EXPECT_EQ(bare.rope.original_max_position, 100);
  EXPECT_EQ(bare.max_position, 250);
}

TEST(ConfigJson, RejectsBrokenRope) {
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": {"rope_type": "linear"})"),
              HasSubstr("rope_scaling.factor is missing; it must be a number from 1 to"));
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": {"rope_type": "linear", "factor": 0.5})"),
              HasSubstr("rope_scaling.factor is 0.5; it must be"));
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8})"),
              HasSubstr("rope_scaling.low_freq_factor is missing; it must be"));
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8,
                  "low_freq_factor": 4, "high_freq_factor": 4})"),
              HasSubstr("high_freq_factor is 4; it must be above low_freq_factor, which is 4"));
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": "linear")"),
              HasSubstr("rope_scaling.expected an object, found \"linear\""));
  EXPECT_THAT(error_of(kLlama, R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2,
                  "original_max_position_embeddings": -1})"),
              HasSubstr("original_max_position_embeddings is -1; it must be"));
}

TEST(ConfigJson, MistralWindowsAllLayers) {
  EXPECT_THAT(parsed(kMistral).window, ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(parsed(kMistral, R"(, "sliding_window": null)").window, ElementsAre(0, 0, 0));
  EXPECT_THAT(parsed(kMistral, R"(, "sliding_window": 32)").window, ElementsAre(32, 32, 32));
  // A window as long as the context hides nothing.
  EXPECT_THAT(parsed(kMistral, R"(, "sliding_window": 32, "max_position_embeddings": 32)").window,
              ElementsAre(0, 0, 0));
  EXPECT_THAT(error_of(kMistral, R"(, "sliding_window": 0)"),
              HasSubstr("sliding_window is 0; it must be an integer from 1"));
  EXPECT_THAT(error_of(kMistral, R"(, "sliding_window": -5)"),
              HasSubstr("sliding_window is -5; it"));
  EXPECT_THAT(error_of(kMistral, R"(, "layer_types": ["full_attention", "sliding_attention",
                  "full_attention"])"),
              HasSubstr("all layers of MistralForCausalLM are of one type"));
}

TEST(ConfigJson, LlamaHasNoWindow) {
  EXPECT_THAT(parsed(kLlama, R"(, "sliding_window": 32)").window, ElementsAre(0, 0, 0));
  EXPECT_THAT(error_of(kLlama, R"(, "layer_types": ["full_attention", "sliding_attention",
                  "full_attention"])"),
              HasSubstr("LlamaForCausalLM has only \"full_attention\" layers"));
}

TEST(ConfigJson, QwenWindowsTheLayersThatSayso) {
  for (const std::string_view family : {kQwen2, kQwen3}) {
    EXPECT_THAT(parsed(family, R"(, "sliding_window": 32)").window, ElementsAre(0, 0, 0));
    EXPECT_THAT(parsed(family, R"(, "use_sliding_window": false, "sliding_window": 32,
                    "max_window_layers": 0)")
                    .window,
                ElementsAre(0, 0, 0));
    EXPECT_THAT(parsed(family, R"(, "use_sliding_window": true, "sliding_window": 32)").window,
                ElementsAre(0, 0, 0));  // From layer 28 on.
    EXPECT_THAT(parsed(family, R"(, "use_sliding_window": true, "sliding_window": 32,
                    "max_window_layers": 1)")
                    .window,
                ElementsAre(0, 32, 32));
    EXPECT_THAT(parsed(family, R"(, "use_sliding_window": true, "sliding_window": 32,
                    "max_window_layers": 1, "layer_types": ["sliding_attention", "full_attention",
                    "sliding_attention"])")
                    .window,
                ElementsAre(32, 0, 32));
    EXPECT_THAT(error_of(family, R"(, "use_sliding_window": false, "sliding_window": 32,
                    "layer_types": ["sliding_attention", "full_attention", "full_attention"])"),
                HasSubstr("use_sliding_window is false; layer_types has \"sliding_attention\""));
  }
  EXPECT_THAT(
      error_of(kQwen2, R"(, "layer_types": ["full_attention"])"),
      HasSubstr("layer_types is an array of 1; it must be an array of num_hidden_layers (3)"));
  EXPECT_THAT(error_of(kQwen2, R"(, "layer_types": ["full_attention", "full_attention",
                  "linear_attention"])"),
              HasSubstr("layer_types[2] is \"linear_attention\"; it must be"));
}

TEST(ConfigJson, ReadsDtypeInBothSpellings) {
  EXPECT_EQ(parsed(kLlama, R"(, "torch_dtype": "float16")").stored_dtype, DType::kF16);
  EXPECT_EQ(parsed(kLlama, R"(, "dtype": "bfloat16")").stored_dtype, DType::kBf16);
  EXPECT_EQ(parsed(kLlama, R"(, "torch_dtype": "torch.float32")").stored_dtype, DType::kF32);
}

TEST(ConfigJson, ReadsEndsOfTurn) {
  EXPECT_THAT(parsed(kLlama, R"(, "eos_token_id": 7)").eos, ElementsAre(7));
  EXPECT_THAT(parsed(kLlama, R"(, "eos_token_id": [7, 9, 7])").eos, ElementsAre(7, 9));
  EXPECT_THAT(parsed(kLlama, R"(, "eos_token_id": null)").eos, IsEmpty());
  EXPECT_EQ(parsed(kLlama, R"(, "bos_token_id": null)").bos, -1);
  EXPECT_EQ(parsed(kLlama, R"(, "bos_token_id": -1)").bos, -1);
}

TEST(GenerationConfig, ReadsDefaultsAndLeavesTheRestOpen) {
  const GenerationDefaults some = parse_generation_config(R"({"do_sample": true,
      "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "min_p": 0.0,
      "eos_token_id": [7, 8], "pad_token_id": 5, "max_new_tokens": 64,
      "transformers_version": "4.51.0"})",
                                                          "generation_config.json",
                                                          100)
                                      .value();
  EXPECT_EQ(some.do_sample, true);
  EXPECT_EQ(some.numbers[&SamplingParams::temperature], 0.6);
  EXPECT_EQ(some.numbers[&SamplingParams::top_p], 0.95);
  EXPECT_EQ(some.top_k, 20);
  EXPECT_EQ(some.numbers[&SamplingParams::min_p], 0.0);
  EXPECT_EQ(some.numbers[&SamplingParams::repetition_penalty], 1.05);
  EXPECT_EQ(some.max_new_tokens, 64);
  EXPECT_THAT(some.eos, ElementsAre(7, 8));
  const GenerationDefaults none = parse_generation_config("{}", "g", 100).value();
  EXPECT_FALSE(none.do_sample || none.top_k || none.max_new_tokens);
  for (const SamplingNumber& number : kSamplingNumbers) {
    EXPECT_FALSE(none.numbers[number.field]) << number.name;
  }
  EXPECT_THAT(none.eos, IsEmpty());
  EXPECT_EQ(parse_generation_config(R"({"top_k": -1})", "g", 100)->top_k, 0);
}

TEST(GenerationConfig, RejectsWhatNoRequestCouldAskFor) {
  const auto error = [](std::string_view text) {
    return parse_generation_config(text, "generation_config.json", 100).error().message;
  };
  EXPECT_EQ(error(R"({"temperature": -1})"),
            "generation_config.json: temperature is -1; it must be a number from 0 to 100");
  EXPECT_THAT(error(R"({"top_p": 1.5})"),
              HasSubstr("top_p is 1.5; it must be a number from 0 to 1"));
  EXPECT_THAT(error(R"({"top_k": -2})"), HasSubstr("top_k is -2; it must be an integer from -1"));
  EXPECT_THAT(error(R"({"repetition_penalty": 0})"), HasSubstr("repetition_penalty is 0; it must"));
  EXPECT_THAT(error(R"({"eos_token_id": 100})"), HasSubstr("eos_token_id is 100; token ids"));
  EXPECT_THAT(error(R"({"do_sample": "yes"})"), HasSubstr("do_sample is \"yes\"; it must be true"));
  EXPECT_THAT(error("{"), HasSubstr("generation_config.json: not valid JSON"));
}

}  // namespace
}  // namespace heddle::spec
