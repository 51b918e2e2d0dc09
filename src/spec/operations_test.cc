#include "spec/operations.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(CpuOnly, IsNothingOfGemmaGraniteAndOlmo2) {
  ModelSpec model;
  model.scales = {.embedding = 8.0, .attention = 0.5, .residual = 0.5, .logits = 0.25};
  model.scales.attention_cap = 50;
  model.scales.logit_cap = 30;
  model.qk_norm_whole = true;
  model.layer_rope = {LayerRope::kLocal, LayerRope::kNone};
  model.activation = Activation::kGeluTanh;
  for (const Norms norms : {Norms::kBefore, Norms::kAround, Norms::kAfter}) {
    model.norms = norms;
    EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  }
}

TEST(CpuOnly, NamesWhatGpusLackOfExperts) {
  ModelSpec model{.hidden = 64, .experts = {.count = 8, .active = 2, .intermediate = 48}};
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  EXPECT_EQ(cpu_only(model, DType::kStored), "");
  EXPECT_EQ(cpu_only(model, DType::kF32), "experts in float32 or int8");
  EXPECT_EQ(cpu_only(model, DType::kI8), "experts in float32 or int8");
  model.experts.slots = 3;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "experts that stay in host memory");
  model.experts.slots = 0;
  model.experts.intermediate = 44;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "experts whose widths are no multiples of 8");
  model.experts.intermediate = 48;
  model.experts.active = 33;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "so many experts");
}

TEST(CpuOnly, NamesWhatGpusLackOfGemma4) {
  ModelSpec model{.kv_heads = 2, .head_dim = 256};
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  model.global_head_dim = 128;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "layers whose heads differ in size");
  model.global_head_dim = 512;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "heads of attention wider than 256");
  model.global_head_dim = 0;
  model.value_norm = true;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "norms of values");
  model.value_norm = false;
  model.layer_scale = true;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "layers that are multiplied by a number of their own");
  model.layer_scale = false;
  model.experts = {.count = 8, .active = 2, .intermediate = 48, .beside = true};
  EXPECT_EQ(cpu_only(model, DType::kBf16), "experts beside an MLP that all tokens take");
}

TEST(CpuOnly, IsNothingOfGptOss) {
  ModelSpec model{
      .hidden = 64, .layers = 1, .experts = {.count = 8, .active = 2, .intermediate = 48}};
  model.formats = {DType::kBf16, DType::kMxfp4};
  model.experts.biased = true;
  model.experts.gate_limit = 7.0;
  model.sinks = true;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  EXPECT_EQ(cpu_only(model, DType::kStored), "");
}

TEST(FitRope, TakesShortFactorsWithinTheOriginalContext) {
  const ModelSpec model{.rope = {.kind = RopeKind::kLongRope,
                                 .original_max_position = 4096,
                                 .factors = {1.5, 3.0},
                                 .short_factors = {1.0, 1.1}}};
  ModelSpec within = model;
  fit_rope(within, 4096);
  EXPECT_EQ(within.rope.factors, (std::vector{1.0, 1.1}));
  fit_rope(within, 4097);
  EXPECT_EQ(within.rope.factors, (std::vector{1.0, 1.1})) << "the choice was made";
  ModelSpec beyond = model;
  fit_rope(beyond, 4097);
  EXPECT_EQ(beyond.rope.factors, (std::vector{1.5, 3.0}));
}

TEST(StepTokens, AnEncodersLongestTextHasRoom) {
  ModelSpec model{.max_position = 600};
  EXPECT_EQ(step_tokens(model, 512), 512);
  model.encoder = {.positions = 602, .first_position = 2, .types = 1};
  EXPECT_EQ(step_tokens(model, 512), 600);
  EXPECT_EQ(step_tokens(model, 4096), 4096);
  EXPECT_EQ(cpu_only(model, DType::kBf16), "an encoder");
}

TEST(AttentionScale, IsByTheHeadUnlessTheModelSays) {
  ModelSpec model;
  model.head_dim = 64;
  EXPECT_EQ(attention_scale(model), 0.125F);
  model.scales.attention = 0.5;
  EXPECT_EQ(attention_scale(model), 0.5F);
}

}  // namespace
}  // namespace heddle::spec
