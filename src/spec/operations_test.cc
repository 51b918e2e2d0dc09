#include "spec/operations.h"

#include <gtest/gtest.h>

namespace heddle::spec {
namespace {

TEST(CpuOnly, NamesWhatGpusLack) {
  ModelSpec model;
  EXPECT_EQ(cpu_only(model), "");
  model.scales.attention = 0.5;
  model.qk_norm_whole = true;
  model.layer_rope = {LayerRope::kLocal, LayerRope::kNone};
  EXPECT_EQ(cpu_only(model), "");
  model.scales.logit_cap = 30;
  EXPECT_EQ(cpu_only(model), "soft caps");
  model.scales.residual = 0.5;
  EXPECT_EQ(cpu_only(model), "scaled embeddings, sums or logits");
  model.activation = Activation::kGeluTanh;
  EXPECT_EQ(cpu_only(model), "gates of GELU");
  model.norms = Norms::kAround;
  EXPECT_EQ(cpu_only(model), "norms of what layers add");
  model.experts.count = 2;
  EXPECT_EQ(cpu_only(model), "experts");
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
