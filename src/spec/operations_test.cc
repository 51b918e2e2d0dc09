#include "spec/operations.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(CpuOnly, NamesWhatGpusLack) {
  ModelSpec model;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  model.scales.attention = 0.5;
  model.qk_norm_whole = true;
  model.layer_rope = {LayerRope::kLocal, LayerRope::kNone};
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  model.scales.logit_cap = 30;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "soft caps");
  model.scales.residual = 0.5;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "scaled embeddings, sums or logits");
  model.activation = Activation::kGeluTanh;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "gates of GELU");
  model.norms = Norms::kAround;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "norms of what layers add");
}

TEST(CpuOnly, NamesWhatGpusLackOfExperts) {
  ModelSpec model{.hidden = 64, .experts = {.count = 8, .active = 2, .intermediate = 48}};
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  EXPECT_EQ(cpu_only(model, DType::kStored), "");
  EXPECT_EQ(cpu_only(model, DType::kF32), "experts in float32 or int8");
  EXPECT_EQ(cpu_only(model, DType::kI8), "experts in float32 or int8");
  model.experts.intermediate = 44;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "experts whose widths are no multiples of 8");
  model.experts.intermediate = 48;
  model.experts.active = 33;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "so many experts");
}

TEST(CpuOnly, NamesWhatGpusLackOfGptOss) {
  ModelSpec model{
      .hidden = 64, .layers = 1, .experts = {.count = 8, .active = 2, .intermediate = 48}};
  model.formats = {DType::kBf16, DType::kMxfp4};
  EXPECT_EQ(cpu_only(model, DType::kBf16), "");
  EXPECT_EQ(cpu_only(model, DType::kStored), "blocks of MXFP4");
  model.experts.biased = true;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "experts with biases or limits");
  model.sinks = true;
  EXPECT_EQ(cpu_only(model, DType::kBf16), "sinks of attention");
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
