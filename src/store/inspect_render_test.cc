#include "store/inspect_render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/json.h"
#include "spec/memory_needs.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Inspection example() {
  Inspection inspection{.path = "models/tiny"};
  inspection.config = ModelConfig{.model = tiny_model()};
  inspection.config->model.window = {0, 64};
  inspection.config->model.eos = {7, 8};
  inspection.config->generation.numbers[&spec::SamplingParams::top_p] = 0.5;
  inspection.files = {"model.safetensors"};
  inspection.types = {{StoredType::kBf16, 3, 2'000'000, 4'000'000}, {StoredType::kF32, 1, 5, 20}};
  inspection.biggest = {
      {.name = "w\x1b[31m", .type = StoredType::kBf16, .shape = {2, 3}, .bytes = 12}};
  inspection.needs = {spec::memory_needs(inspection.config->model, spec::DType::kBf16)};
  inspection.text_files = {"tokenizer.json"};
  inspection.problems = {"first", "second"};
  return inspection;
}

TEST(RenderText, TellsAllOfIt) {
  EXPECT_EQ(render_text(example()),
            R"(  path          models/tiny
  architecture  LlamaForCausalLM
  dimensions    2 layers, hidden 24, 4 heads of 8 (2 for k and v), mlp 40, vocabulary 50
  with          own output head
  context       128 tokens, window of 64 in 1 of 2 layers, rope theta 10000
  parameters    12.9 k (12888)
  end of turn   token 7, 8
  defaults      top_p 0.5
  weights       3.81 MiB in 4 tensors, 2 M elements, of 1 file
  stored as     3 BF16 (3.81 MiB), 1 F32 (20 B)
  biggest       12 B       w?[31m BF16 [2, 3]
  text          tokenizer.json
  memory        bfloat16: weights 25.4 KiB, at least 37.4 KiB to serve, 37.4 KiB with a full context
  kv cache      bfloat16: 128 B per token, 125 KiB per 1,000 tokens
                kv_cache_dtype int8 or fp8: 80 B per token, 78.1 KiB per 1,000 tokens
  PROBLEM       first
                second
)");
}

TEST(RenderText, TellsOfExperts) {
  Inspection inspection = example();
  spec::ModelSpec& model = inspection.config->model;
  model.intermediate = 0;
  model.experts = {.count = 8, .active = 2, .intermediate = 16};
  const std::string text = render_text(inspection);
  EXPECT_THAT(text, HasSubstr(", 8 experts of 16, of which a token takes 2, vocabulary 50\n"));
  EXPECT_THAT(text, HasSubstr("parameters    25.9 k (25944), of which a token uses 12.1 k\n"));
}

TEST(RenderText, NamesWhatAModelHasBesideLlama) {
  Inspection inspection = example();
  spec::ModelSpec& model = inspection.config->model;
  model.architecture = spec::Architecture::kGemma3;
  model.activation = spec::Activation::kGeluTanh;
  model.norms = spec::Norms::kAround;
  model.scales = {.embedding = 5, .attention_cap = 50, .logit_cap = 30};
  model.layer_rope = {spec::LayerRope::kNone, spec::LayerRope::kLocal};
  const std::string text = render_text(inspection);
  EXPECT_THAT(text, HasSubstr("architecture  Gemma3ForCausalLM\n"));
  EXPECT_THAT(text,
              HasSubstr("own output head, norms around attention and mlp, GELU, multipliers, soft "
                        "cap of scores, soft cap of logits\n"));
  EXPECT_THAT(text, HasSubstr("rope theta 10000, theta 10000 in 1 layers, none in 1 layers\n"));
  model.norms = spec::Norms::kAfter;
  model.qk_norm_whole = true;
  EXPECT_THAT(render_text(inspection),
              HasSubstr("q/k norm over all heads, norms behind attention and mlp, "));
}

TEST(RenderText, NamesHeadsOfBothSizes) {
  Inspection inspection = example();
  spec::ModelSpec& model = inspection.config->model;
  model.global_kv_heads = 1;
  model.global_head_dim = 16;
  model.layer_rope = {spec::LayerRope::kLocal, spec::LayerRope::kModels};
  EXPECT_THAT(render_text(inspection),
              HasSubstr("in 1 of 2 layers 4 heads of 16 (1 for k and v)\n"));
  const spec::Json json = spec::parse_json(render_json(inspection), "inspection").value();
  EXPECT_EQ(*json.find("model")->find("global_head_dim")->as<std::int64_t>(), 16);
  EXPECT_EQ(*json.find("model")->find("global_kv_heads")->as<std::int64_t>(), 1);
}

TEST(RenderText, NamesLinearAttentionAndItsState) {
  Inspection inspection = example();
  spec::ModelSpec& model = inspection.config->model;
  model.attention_gate = true;
  model.rotary_dim = 4;
  model.linear = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .kernel = 4};
  model.mixer = {spec::Mixer::kDeltaRule, spec::Mixer::kAttention};
  inspection.needs = {spec::memory_needs(model, spec::DType::kBf16)};
  const std::string text = render_text(inspection);
  EXPECT_THAT(
      text, HasSubstr("linear attention in 1 of 2 layers, 2 heads of 8 and 4 of 12 for values\n"));
  EXPECT_THAT(text, HasSubstr("gated attention"));
  EXPECT_THAT(text, HasSubstr(", of 4 elements of a head"));
  EXPECT_THAT(text, HasSubstr(" per 1,000 tokens, 2.44 KiB of state per sequence\n"));
  const spec::Json json = spec::parse_json(render_json(inspection), "inspection").value();
  EXPECT_EQ(*json.find("memory")->find("bfloat16")->find("state_bytes")->as<std::int64_t>(),
            4 * (4 * 12 * 8 + 3 * 80));
  EXPECT_EQ(*json.find("model")->find("linear_attention")->find("layers")->as<std::int64_t>(), 1);
}

TEST(RenderText, LeavesOutWhatIsUnknown) {
  const std::string text = render_text({.path = "x", .problems = {"broken"}});
  EXPECT_EQ(text, "  path          x\n  PROBLEM       broken\n");
}

TEST(RenderJson, IsValidAndComplete) {
  const spec::Json json = spec::parse_json(render_json(example()), "inspection").value();
  EXPECT_EQ(*json.find("path")->as<std::string>(), "models/tiny");
  EXPECT_EQ(*json.find("model")->find("hidden")->as<std::int64_t>(), 24);
  EXPECT_EQ(json.find("model")->find("window")->as<spec::Json::Array>()->size(), 2U);
  const spec::Json& weights = *json.find("weights");
  EXPECT_EQ(*weights.find("bytes")->as<std::int64_t>(), 4'000'020);
  EXPECT_EQ(*weights.find("types")->find("F32")->find("tensors")->as<std::int64_t>(), 1);
  const spec::Json& biggest = weights.find("biggest")->as<spec::Json::Array>()->front();
  EXPECT_EQ(*biggest.find("name")->as<std::string>(), "w\x1b[31m");
  EXPECT_EQ(*json.find("memory")->find("bfloat16")->find("kv_bytes_per_token")->as<std::int64_t>(),
            128);
  EXPECT_EQ(json.find("problems")->as<spec::Json::Array>()->size(), 2U);
}

TEST(RenderJson, LeavesOutWhatIsUnknown) {
  const std::string text = render_json({.path = "x", .problems = {"broken"}});
  EXPECT_THAT(text, AllOf(HasSubstr("\"problems\":[\"broken\"]"), Not(HasSubstr("\"model\""))));
  EXPECT_TRUE(spec::parse_json(text, "inspection").has_value());
}

}  // namespace
}  // namespace heddle::store
