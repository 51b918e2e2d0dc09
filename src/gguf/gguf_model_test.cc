#include "gguf/gguf_model.h"

#include <cmath>
#include <map>
#include <numbers>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/test_gguf.h"

namespace heddle::gguf {
namespace {

using spec::Architecture;
using spec::RopeKind;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class GgufModelTest : public testing::Test {
 protected:
  [[nodiscard]] GgufFile open(const TestGguf& file) const {
    const std::filesystem::path path = directory_.path() / "m.gguf";
    write_text(path, file.bytes());
    return GgufFile::open(path, Keep::kAll).value();
  }
  [[nodiscard]] spec::ModelSpec spec_of(const TestGguf& file) const {
    return model_spec(open(file)).value();
  }
  [[nodiscard]] std::string fault(const TestGguf& file) const {
    const Result<spec::ModelSpec> model = model_spec(open(file));
    return model ? "accepted" : model.error().message;
  }
  TempDirectory directory_{};
};

TEST_F(GgufModelTest, ReadsTheDimensions) {
  const spec::ModelSpec model = spec_of(small_model().f32("llama.rope.freq_base", 500000.0F));
  EXPECT_EQ(model.architecture, Architecture::kLlama);
  EXPECT_EQ(model.hidden, 16);
  EXPECT_EQ(model.heads, 4);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.head_dim, 4);
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.intermediate, 24);
  EXPECT_EQ(model.max_position, 64);
  EXPECT_EQ(model.vocab, 8);
  EXPECT_EQ(model.rms_eps, 1e-5);
  EXPECT_EQ(model.rope_theta, 500000.0);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_FALSE(model.qkv_bias);
  EXPECT_EQ(model.bos, -1);
  EXPECT_TRUE(model.eos.empty());
  EXPECT_FALSE(spec_of(small_model().zeros("output.weight", {16, 8})).tied_embeddings);
}

TEST_F(GgufModelTest, ReadsTheFamilies) {
  const spec::ModelSpec qwen2 = spec_of(small_model("qwen2"));
  EXPECT_EQ(qwen2.architecture, Architecture::kQwen2);
  EXPECT_TRUE(qwen2.qkv_bias);
  const spec::ModelSpec qwen3 = spec_of(small_model("qwen3")
                                            .u32("qwen3.attention.key_length", 8)
                                            .u32("qwen3.attention.value_length", 8));
  EXPECT_EQ(qwen3.architecture, Architecture::kQwen3);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 8);
  const spec::ModelSpec mistral = spec_of(small_model().u32("llama.attention.sliding_window", 16));
  EXPECT_EQ(mistral.architecture, Architecture::kMistral);
  EXPECT_THAT(mistral.window, ElementsAre(16, 16));
}

TEST_F(GgufModelTest, FindsBiasesByTheirTensors) {
  const spec::ModelSpec model =
      spec_of(small_model().zeros("blk.0.attn_q.bias", {16}).zeros("blk.0.ffn_up.bias", {24}));
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_TRUE(model.mlp_bias);
}

TEST_F(GgufModelTest, ReadsWhatBeginsAndEndsText) {
  const spec::ModelSpec model = spec_of(small_model()
                                            .u32("tokenizer.ggml.bos_token_id", 1)
                                            .u32("tokenizer.ggml.eos_token_id", 2)
                                            .u32("tokenizer.ggml.eot_token_id", 5));
  EXPECT_EQ(model.bos, 1);
  EXPECT_THAT(model.eos, ElementsAre(2, 5));
}

TEST_F(GgufModelTest, TakesArraysInWhichLayersAgree) {
  TestGguf file = small_model();
  file.numbers("llama.attention.value_length", ValueType::kI32, std::vector<std::int32_t>{4, 4});
  EXPECT_EQ(fault(file), "accepted");
  file = small_model();
  file.numbers("llama.attention.value_length", ValueType::kI32, std::vector<std::int32_t>{4, 8});
  EXPECT_THAT(fault(file),
              HasSubstr("key \"llama.attention.value_length\" is an array of 2 i32; it "
                        "must be an integer, or an array of equal ones"));
}

TEST_F(GgufModelTest, ReadsScaling) {
  const spec::ModelSpec linear = spec_of(
      small_model().text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4));
  EXPECT_EQ(linear.rope.kind, RopeKind::kLinear);
  EXPECT_EQ(linear.max_position, 256);
  const spec::ModelSpec old = spec_of(small_model().f32("llama.rope.scale_linear", 2));
  EXPECT_EQ(old.rope.kind, RopeKind::kLinear);
  EXPECT_EQ(old.rope.factor, 2);
  const spec::ModelSpec yarn = spec_of(small_model("qwen2")
                                           .text("qwen2.rope.scaling.type", "yarn")
                                           .f32("qwen2.rope.scaling.factor", 8)
                                           .f32("qwen2.rope.scaling.yarn_beta_fast", 16)
                                           .u32("qwen2.rope.scaling.original_context_length", 32));
  EXPECT_EQ(yarn.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(yarn.rope.factor, 8);
  EXPECT_EQ(yarn.rope.beta_fast, 16);
  EXPECT_EQ(yarn.rope.original_max_position, 32);
  EXPECT_EQ(yarn.max_position, 256);
  EXPECT_EQ(spec_of(small_model().text("llama.rope.scaling.type", "none")).rope.kind,
            RopeKind::kDefault);
  EXPECT_THAT(
      fault(small_model().text("llama.rope.scaling.type", "longrope")),
      HasSubstr("key \"llama.rope.scaling.type\" is \"longrope\"; built in are none, linear "
                "and yarn; llama-server serves"));
}

/// The factors that convert_hf_to_gguf.py makes for heads of 64.
std::string llama3_factors(double theta, double factor, double low, double high, double original) {
  std::string data;
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * i / 64.0);
    double divisor = 1;
    if (wavelength > original / low) {
      divisor = factor;
    } else if (wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    data += raw(static_cast<float>(divisor));
  }
  return data;
}

TestGguf with_factors(const std::string& data) {
  return small_model()
      .u32("llama.attention.key_length", 64)
      .u32("llama.attention.value_length", 64)
      .f32("llama.rope.freq_base", 500000.0F)
      .tensor({.name = "rope_freqs.weight", .sizes = {data.size() / 4}, .data = data});
}

TEST_F(GgufModelTest, ReadsTheScalingOfLlama3FromItsFactors) {
  const spec::ModelSpec model = spec_of(with_factors(llama3_factors(500000, 32, 1, 4, 8192)));
  EXPECT_EQ(model.rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(model.rope.factor, 32);
  EXPECT_EQ(model.rope.low_freq_factor, 1);
  EXPECT_EQ(model.rope.high_freq_factor, 4);
  EXPECT_EQ(model.rope.original_max_position, 8192);
}

// Only ratios are in the factors: 2 and 6 of 4,096 are 1 and 3 of 2,048.
TEST_F(GgufModelTest, FitsOtherScalingOfThatForm) {
  const spec::ModelSpec model = spec_of(with_factors(llama3_factors(500000, 16, 2, 6, 4096)));
  EXPECT_EQ(model.rope.factor, 16);
  EXPECT_NEAR(model.rope.low_freq_factor, 1, 1e-9);
  EXPECT_NEAR(model.rope.high_freq_factor, 3, 1e-3);
  EXPECT_NEAR(static_cast<double>(model.rope.original_max_position), 2048, 2);
}

TEST_F(GgufModelTest, RefusesFactorsOfNoSuchForm) {
  std::string odd;
  for (int i = 0; i < 32; ++i) {
    odd += raw(1.0F + static_cast<float>(i * i % 7));
  }
  const std::string zero(128, '\0');
  for (const std::string& data : {odd, zero, std::string(64, '\0')}) {
    EXPECT_THAT(
        fault(with_factors(data)),
        HasSubstr("tensor \"rope_freqs.weight\" is not what scaling of Llama 3 makes for heads "
                  "of 64; llama-server serves"));
  }
  std::string ones;
  for (int i = 0; i < 32; ++i) {
    ones += raw(1.0F);
  }
  EXPECT_EQ(spec_of(with_factors(ones)).rope.kind, RopeKind::kDefault);
}

TEST_F(GgufModelTest, ExpertsAreAsLlamaCppTakesThem) {
  const auto with_experts = [](const std::string& name) {
    TestGguf file = small_model(name);
    file.u32(name + ".expert_count", 6).u32(name + ".expert_used_count", 2);
    return file;
  };
  const spec::ModelSpec mixtral = spec_of(with_experts("llama"));
  EXPECT_EQ(mixtral.architecture, Architecture::kMixtral);
  EXPECT_EQ(mixtral.intermediate, 0);
  EXPECT_EQ(mixtral.experts,
            (spec::Experts{.count = 6, .active = 2, .intermediate = 24, .normalised = true}));
  const spec::ModelSpec old = spec_of(with_experts("qwen2moe"));
  EXPECT_EQ(old.intermediate, 24);
  EXPECT_EQ(old.experts, (spec::Experts{.count = 6, .active = 2, .intermediate = 12}));
  const spec::ModelSpec qwen2 = spec_of(with_experts("qwen2moe")
                                            .u32("qwen2moe.expert_feed_forward_length", 10)
                                            .u32("qwen2moe.expert_shared_feed_forward_length", 18));
  EXPECT_EQ(qwen2.intermediate, 18);
  EXPECT_EQ(qwen2.experts.intermediate, 10);
  const spec::ModelSpec qwen3 =
      spec_of(with_experts("qwen3moe").u32("qwen3moe.expert_feed_forward_length", 10));
  EXPECT_EQ(qwen3.intermediate, 0);
  EXPECT_TRUE(qwen3.experts.normalised);
}

TEST_F(GgufModelTest, GemmaIsAsLlamaCppTakesIt) {
  using enum spec::LayerRope;
  const spec::ModelSpec plain = spec_of(small_model("gemma3"));
  EXPECT_THAT(plain.layer_rope, ElementsAre(kModels, kModels)) << "there is no window";
  EXPECT_EQ(plain.scales.attention, 0.5);
  const spec::ModelSpec windows = spec_of(small_model("gemma3")
                                              .u32("gemma3.attention.sliding_window", 8)
                                              .f32("gemma3.rope.freq_base_swa", 5000.0F));
  EXPECT_THAT(windows.layer_rope, ElementsAre(kLocal, kLocal));
  EXPECT_THAT(windows.window, ElementsAre(8, 8));
  EXPECT_EQ(windows.local_theta, 5000);
  const spec::ModelSpec second = spec_of(small_model("gemma2")
                                             .u32("gemma2.attention.sliding_window", 8)
                                             .f32("gemma2.final_logit_softcapping", 20.0F)
                                             .u32("gemma2.attention.key_length", 16)
                                             .u32("gemma2.attention.value_length", 16));
  EXPECT_THAT(second.window, ElementsAre(8, 0));
  EXPECT_EQ(second.scales.attention, 0.25);
  EXPECT_EQ(second.scales.attention_cap, 50);
  EXPECT_EQ(second.scales.logit_cap, 20);
}

TEST_F(GgufModelTest, GraniteIsAsLlamaCppTakesIt) {
  EXPECT_EQ(spec_of(small_model("granite")).scales, (spec::Scales{.attention = 0.5}));
  const spec::ModelSpec scaled = spec_of(small_model("granite")
                                             .f32("granite.attention.scale", 0.25F)
                                             .f32("granite.embedding_scale", 12.0F)
                                             .f32("granite.residual_scale", 0.5F)
                                             .f32("granite.logit_scale", 8.0F));
  EXPECT_EQ(scaled.scales,
            (spec::Scales{.embedding = 12, .attention = 0.25, .residual = 0.5, .logits = 0.125}));
}

TestGguf small_hybrid(std::uint32_t inner = 72) {
  TestGguf file;
  file.text("general.architecture", "qwen35moe");
  for (const auto& [key, value] :
       std::map<std::string, std::uint32_t>{{"embedding_length", 16},
                                            {"attention.head_count", 4},
                                            {"attention.head_count_kv", 2},
                                            {"block_count", 6},
                                            {"nextn_predict_layers", 1},
                                            {"context_length", 64},
                                            {"full_attention_interval", 2},
                                            {"rope.dimension_count", 2},
                                            {"ssm.conv_kernel", 4},
                                            {"ssm.state_size", 8},
                                            {"ssm.group_count", 2},
                                            {"ssm.time_step_rank", 6},
                                            {"ssm.inner_size", inner},
                                            {"expert_count", 4},
                                            {"expert_used_count", 2},
                                            {"expert_feed_forward_length", 20},
                                            {"expert_shared_feed_forward_length", 28}}) {
    file.u32("qwen35moe." + key, value);
  }
  file.f32("qwen35moe.attention.layer_norm_rms_epsilon", 1e-5F);
  return file.zeros("token_embd.weight", {16, 8});
}

TEST_F(GgufModelTest, ReadsLinearAttentionByTheNamesOfStateSpaces) {
  using spec::Mixer;
  const spec::ModelSpec model = spec_of(small_hybrid());
  EXPECT_EQ(model.architecture, Architecture::kQwen35Moe);
  EXPECT_EQ(model.linear,
            (spec::LinearAttention{.key_heads = 2,
                                   .value_heads = 6,
                                   .key_dim = 8,
                                   .value_dim = 12,
                                   .kernel = 4,
                                   .tiled = true,
                                   .gates_apart = true}));
  EXPECT_THAT(model.mixer,
              ElementsAre(Mixer::kDeltaRule,
                          Mixer::kAttention,
                          Mixer::kDeltaRule,
                          Mixer::kAttention,
                          Mixer::kDeltaRule))
      << "the last layer of the file guesses a further token";
  EXPECT_EQ(model.rotary_dim, 2);
  EXPECT_EQ(model.experts,
            (spec::Experts{.count = 4, .active = 2, .intermediate = 20, .normalised = true}));
  EXPECT_EQ(model.intermediate, 28);
  EXPECT_THAT(fault(small_hybrid(71)), HasSubstr("a multiple of ssm.time_step_rank"));
}

/// A file of Qwen3-Next, whose tensors are of a form.
TestGguf qwen3next(const char* tensor) {
  TestGguf file = small_model("qwen3next", 8);
  for (const auto& [key, value] :
       std::map<std::string, std::uint32_t>{{"full_attention_interval", 2},
                                            {"rope.dimension_count", 2},
                                            {"ssm.conv_kernel", 4},
                                            {"ssm.state_size", 8},
                                            {"ssm.group_count", 2},
                                            {"ssm.time_step_rank", 6},
                                            {"ssm.inner_size", 48},
                                            {"expert_count", 4},
                                            {"expert_used_count", 2},
                                            {"expert_feed_forward_length", 20},
                                            {"expert_shared_feed_forward_length", 28}}) {
    file.u32("qwen3next." + key, value);
  }
  return file.zeros(tensor, {16, 4});
}

TEST_F(GgufModelTest, ReadsQwen3NextOfBothForms) {
  const spec::ModelSpec model = spec_of(qwen3next("blk.0.attn_qkv.weight"));
  EXPECT_EQ(model.architecture, Architecture::kQwen3Next);
  EXPECT_EQ(model.linear,
            (spec::LinearAttention{.key_heads = 2,
                                   .value_heads = 6,
                                   .key_dim = 8,
                                   .value_dim = 8,
                                   .kernel = 4,
                                   .gates_apart = true}));
  EXPECT_EQ(model.experts,
            (spec::Experts{.count = 4, .active = 2, .intermediate = 20, .normalised = true}));
  EXPECT_EQ(model.intermediate, 28);
  EXPECT_EQ(model.rotary_dim, 2);
  EXPECT_FALSE(spec_of(qwen3next("blk.0.ssm_in.weight")).linear.gates_apart);
}

TEST_F(GgufModelTest, ReadsGptOss) {
  const auto file = [] {
    TestGguf small;
    small.text("general.architecture", "gpt-oss");
    for (const auto& [key, value] :
         std::map<std::string, std::uint32_t>{{"embedding_length", 16},
                                              {"attention.head_count", 4},
                                              {"attention.head_count_kv", 2},
                                              {"attention.key_length", 8},
                                              {"attention.value_length", 8},
                                              {"attention.sliding_window", 9},
                                              {"block_count", 3},
                                              {"context_length", 64},
                                              {"feed_forward_length", 24},
                                              {"expert_count", 4},
                                              {"expert_used_count", 2},
                                              {"expert_feed_forward_length", 20}}) {
      small.u32("gpt-oss." + key, value);
    }
    small.f32("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5F);
    small.zeros("token_embd.weight", {16, 8}).zeros("output.weight", {16, 8});
    return small.zeros("blk.0.attn_q.bias", {32});
  };
  const spec::ModelSpec model = spec_of(file());
  EXPECT_EQ(model.architecture, Architecture::kGptOss);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_EQ(model.experts.count, 4);
  EXPECT_EQ(model.experts.intermediate, 20);
  EXPECT_EQ(model.experts.gate_limit, 7.0);
  EXPECT_TRUE(model.sinks && model.qkv_bias && model.out_bias);
  EXPECT_THAT(model.window, ElementsAre(9, 0, 9));
  EXPECT_EQ(model.rope.kind, RopeKind::kDefault) << "the file has no scaling";
  const spec::ModelSpec scaled =
      spec_of(file()
                  .text("gpt-oss.rope.scaling.type", "yarn")
                  .f32("gpt-oss.rope.scaling.factor", 32.0F)
                  .u32("gpt-oss.rope.scaling.original_context_length", 4096));
  EXPECT_EQ(scaled.rope.kind, RopeKind::kYarn);
  EXPECT_FALSE(scaled.rope.truncate);
}

TEST_F(GgufModelTest, ReadsFactorsOfRotations) {
  const auto file = [](std::vector<float> factors) {
    TestGguf made = small_model("phi3")
                        .u32("phi3.rope.scaling.original_context_length", 16)
                        .f32("phi3.rope.scaling.attn_factor", 1.25F);
    std::string data;
    for (const float factor : factors) {
      data += raw(factor);
    }
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
      made.tensor({.name = name, .sizes = {factors.size()}, .data = data});
    }
    return made;
  };
  const spec::ModelSpec model = spec_of(file({1.5F, 3.0F}));
  EXPECT_EQ(model.rope.kind, RopeKind::kLongRope);
  EXPECT_EQ(model.rope.attention_factor, 1.25);
  EXPECT_EQ(model.rope.original_max_position, 16);
  EXPECT_THAT(model.rope.factors, ElementsAre(1.5, 3.0));
  EXPECT_THAT(model.rope.short_factors, ElementsAre(1.5, 3.0));
  EXPECT_THAT(fault(file({1.0F})),
              HasSubstr("tensor \"rope_factors_long.weight\" is not 2 numbers, one for each pair"));
}

TEST_F(GgufModelTest, SaysWhatIsNotBuiltIn) {
  EXPECT_THAT(
      fault(small_model("falcon")),
      EndsWith("m.gguf: key \"general.architecture\" is \"falcon\"; built in are llama, qwen2, "
               "qwen3, qwen2moe, qwen3moe, gemma2, gemma3, gemma4, granite, olmo2, "
               "smollm3, phi3, qwen3next, qwen35, qwen35moe, gpt-oss, bert; llama-server serves "
               "such files: give "
               "the model `engine: "
               "llama-server`"));
  EXPECT_THAT(fault(small_model("qwen2").u32("qwen2.expert_count", 8)),
              HasSubstr("key \"qwen2.expert_count\" is 8; qwen2 with experts is not built in"));
  EXPECT_THAT(fault(small_model().u32("llama.rope.dimension_count", 2)),
              HasSubstr("key \"llama.rope.dimension_count\" is 2; only 4, rotating whole heads"));
  EXPECT_THAT(fault(small_model().u32("llama.attention.value_length", 2)),
              HasSubstr("only values as long as keys"));
  EXPECT_THAT(fault(small_model().flag("llama.attention.causal", false)),
              HasSubstr("only models that look back"));
}

TEST_F(GgufModelTest, NamesWhatIsMissing) {
  EXPECT_THAT(fault(TestGguf()),
              HasSubstr("key \"general.architecture\" is missing; built in are"));
  TestGguf file;
  file.text("general.architecture", "llama").zeros("token_embd.weight", {16, 8});
  EXPECT_THAT(fault(file), EndsWith("m.gguf: key \"llama.embedding_length\" is missing"));
  file = small_model();
  file.text("llama.expert_count", "many");
  EXPECT_THAT(fault(file),
              HasSubstr("key \"llama.expert_count\" is \"many\"; it must be an integer"));
}

// The rules of config.json hold for what becomes one.
TEST_F(GgufModelTest, IsHeldAgainstTheRulesOfDirectories) {
  EXPECT_THAT(
      fault(small_model()
                .u32("llama.attention.key_length", 5)
                .u32("llama.attention.value_length", 5)),
      HasSubstr("m.gguf (as config.json): head_dim is 5; heads of 5 cannot rotate in pairs"));
  EXPECT_THAT(
      fault(small_model().u32("tokenizer.ggml.eos_token_id", 8)),
      HasSubstr("m.gguf (as config.json): eos_token_id is 8; token ids are integers from 0"));
}

TEST_F(GgufModelTest, ReadsWhatItsAuthorsSuggest) {
  const GgufFile file =
      open(small_model()
               .f32("general.sampling.temp", 0.6F)
               .f32("general.sampling.top_p", 0.95F)
               .key("general.sampling.top_k", ValueType::kI32, raw(std::int32_t{20})));
  const spec::GenerationDefaults defaults = generation_defaults(file, 8).value();
  EXPECT_EQ(defaults.numbers[&spec::SamplingParams::temperature], 0.6);
  EXPECT_EQ(defaults.numbers[&spec::SamplingParams::top_p], 0.95);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.numbers[&spec::SamplingParams::min_p], 0.05)
      << "llama.cpp's, as the file says nothing";
  EXPECT_EQ(generation_config_json(open(small_model())),
            R"({"temperature":0.8,"top_p":0.95,"top_k":40,"min_p":0.05})");
}

}  // namespace
}  // namespace heddle::gguf
