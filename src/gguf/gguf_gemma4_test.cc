#include "gguf/gguf_gemma4.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "gguf/gguf_model.h"
#include "gguf/test_gguf.h"
#include "spec/operations.h"

namespace heddle::gguf {
namespace {

using spec::LayerRope;
using testing::ElementsAre;
using testing::HasSubstr;

/// What a test makes otherwise.
struct Gemma4File {
  std::vector<std::uint8_t> windowed{1, 0, 1, 0};
  std::vector<std::uint32_t> kv{2, 1, 2, 1};
  std::vector<float> factors{1, 1, 1, 1e30F, 1e30F, 1e30F};
  std::uint32_t by_layer = 0;  ///< Embeddings.
  std::uint32_t shared = 0;    ///< Layers that share keys and values.
  std::uint32_t value = 12;    ///< Length of values of layers without a window.
  std::uint32_t experts = 0;
  bool values = false;  ///< Layers without a window have values of their own.
};

TestGguf made(const Gemma4File& of) {
  TestGguf file;
  file.text("general.architecture", "gemma4")
      .u32("gemma4.block_count", 4)
      .u32("gemma4.context_length", 64)
      .u32("gemma4.embedding_length", 16)
      .u32("gemma4.feed_forward_length", 24)
      .u32("gemma4.attention.head_count", 4)
      .numbers("gemma4.attention.head_count_kv", ValueType::kU32, of.kv)
      .numbers("gemma4.attention.sliding_window_pattern", ValueType::kBool, of.windowed)
      .u32("gemma4.attention.sliding_window", 8)
      .u32("gemma4.attention.key_length", 12)
      .u32("gemma4.attention.value_length", of.value)
      .u32("gemma4.attention.key_length_swa", 6)
      .u32("gemma4.embedding_length_per_layer_input", of.by_layer)
      .u32("gemma4.attention.shared_kv_layers", of.shared)
      .f32("gemma4.attention.layer_norm_rms_epsilon", 1e-6F)
      .f32("gemma4.final_logit_softcapping", 30)
      .f32("gemma4.rope.freq_base_swa", 500)
      .zeros("token_embd.weight", {16, 8});
  std::string data;
  for (const float factor : of.factors) {
    data += raw(factor);
  }
  file.tensor({.name = "rope_freqs.weight", .sizes = {of.factors.size()}, .data = data});
  if (of.values) {
    file.zeros("blk.1.attn_v.weight", {16, 12});
  }
  if (of.experts > 0) {
    file.u32("gemma4.expert_count", of.experts).u32("gemma4.expert_used_count", 2);
    file.u32("gemma4.expert_feed_forward_length", 10);
  }
  return file;
}

class GgufGemma4Test : public testing::Test {
 protected:
  Result<spec::ModelSpec> read(const Gemma4File& of) {
    write_text(directory_.path() / "m.gguf", made(of).bytes());
    return model_spec(GgufFile::open(directory_.path() / "m.gguf", Keep::kSmall).value());
  }
  std::string fault(const Gemma4File& of) {
    const auto model = read(of);
    return model ? "" : model.error().message;
  }

  TempDirectory directory_{};
};

TEST_F(GgufGemma4Test, HasHeadsOfTwoSizes) {
  const spec::ModelSpec model = read({}).value();
  EXPECT_EQ(model.architecture, spec::Architecture::kGemma4);
  EXPECT_THAT(
      model.layer_rope,
      ElementsAre(LayerRope::kLocal, LayerRope::kModels, LayerRope::kLocal, LayerRope::kModels));
  EXPECT_THAT(model.window, ElementsAre(8, 0, 8, 0));
  EXPECT_EQ(model.head_dim, 6);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.global_head_dim, 12);
  EXPECT_EQ(model.global_kv_heads, 1);
  EXPECT_TRUE(model.keys_are_values);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.vocab, 8);
  EXPECT_EQ(model.rope.kind, spec::RopeKind::kProportional);
  EXPECT_EQ(model.rope.share, 0.5);
  EXPECT_EQ(model.local_theta, 500);
  EXPECT_EQ(model.scales.logit_cap, 30);
  EXPECT_EQ(model.experts.count, 0);
}

TEST_F(GgufGemma4Test, HasExpertsBesideItsMlp) {
  const spec::ModelSpec model = read({.experts = 4}).value();
  EXPECT_EQ(model.experts,
            (spec::Experts{
                .count = 4, .active = 2, .intermediate = 10, .normalised = true, .beside = true}));
  EXPECT_EQ(model.intermediate, 24);
}

TEST_F(GgufGemma4Test, MayHaveValuesInAllLayers) {
  const spec::ModelSpec model = read({.kv = {2, 2, 2, 2}, .values = true}).value();
  EXPECT_FALSE(model.keys_are_values);
  EXPECT_EQ(model.global_kv_heads, 2);
  EXPECT_THAT(fault({.values = true}),
              HasSubstr("only layers without \"attn_v\" have other heads"));
}

TEST_F(GgufGemma4Test, RotatesThePairsThatAreDividedByOne) {
  const auto share = [this](std::vector<float> factors) {
    return read({.factors = std::move(factors)}).value().rope.share;
  };
  EXPECT_EQ(share({1, 1, 1, 1, 1, 1}), 1.0);
  EXPECT_EQ(static_cast<std::int64_t>(share({1, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F}) * 6), 1);
  for (const std::vector<float>& wrong :
       {std::vector<float>{1, 1}, {1, 1, 2, 1e30F, 1e30F, 1e30F}, {1, 1, 1e30F, 1, 1e30F, 1e30F}}) {
    EXPECT_THAT(fault({.factors = wrong}),
                HasSubstr("tensor \"rope_freqs.weight\" is not 6 numbers, 1 for each pair"));
  }
}

TEST_F(GgufGemma4Test, SaysWhatIsWrong) {
  EXPECT_THAT(fault({.by_layer = 256}),
              HasSubstr("key \"gemma4.embedding_length_per_layer_input\" is 256; only 0 is built"));
  EXPECT_EQ(read({.by_layer = 256}).error().code, Code::kInvalidArgument) << "llama.cpp has it";
  EXPECT_THAT(fault({.shared = 2}), HasSubstr("shared_kv_layers\" is 2; only 0 is built in"));
  EXPECT_THAT(fault({.windowed = {1, 0}}), HasSubstr("it must be an array of 4 bools"));
  EXPECT_THAT(fault({.windowed = {0, 0, 0, 1}}), HasSubstr("the last layer must have no window"));
  for (const std::vector<std::uint32_t>& kv :
       {std::vector<std::uint32_t>{2, 1, 1, 1}, {2, 1, 2, 2}, {2, 1}}) {
    EXPECT_THAT(fault({.kv = kv}), HasSubstr("of 4 layers those with a window must have as many"));
  }
  EXPECT_THAT(
      fault({.value = 6}),
      HasSubstr("key \"gemma4.attention.value_length\" is 6; only 12, as gemma4.attention"));
}

}  // namespace
}  // namespace heddle::gguf
