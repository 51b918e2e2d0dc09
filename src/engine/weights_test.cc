#include "engine/weights.h"

#include <gtest/gtest.h>

#include "engine/test_host.h"

namespace heddle::engine {
namespace {

class WeightsTest : public testing::Test {
 protected:
  static spec::ModelSpec model(const std::string& golden) {
    return store::Checkpoint::open(golden_directory() / golden)->config.model;
  }
  /// No weight is read, so any address will do.
  const std::byte* window_ = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 20U);
};

TEST_F(WeightsTest, LieWhereTheLayoutSays) {
  const auto spec = model("llama-bias-eps");
  const auto layout = store::plan_image(spec, spec::DType::kBf16);
  const auto weights = bind_weights(spec, layout, window_);
  ASSERT_TRUE(weights);
  for (const store::ImageTensor& tensor : layout.tensors) {
    if (tensor.role == store::Role::kDown && tensor.layer == 1) {
      EXPECT_EQ(weights->layers[1].down.data, window_ + tensor.offset);
      EXPECT_EQ(weights->layers[1].down.shape[0], spec.hidden);
      EXPECT_EQ(weights->layers[1].down.shape[1], spec.intermediate);
      EXPECT_EQ(weights->layers[1].down.dtype, spec::DType::kBf16);
    }
  }
  EXPECT_TRUE(weights->layers[0].qkv_bias.present());
  EXPECT_TRUE(weights->layers[0].down_bias.present());
  EXPECT_FALSE(weights->layers[0].q_norm.present());
}

TEST_F(WeightsTest, Int8HasAScaleByRow) {
  const auto tied = model("qwen3-tied");
  const auto weights = bind_weights(tied, store::plan_image(tied, spec::DType::kI8), window_);
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->layers[1].down.dtype, spec::DType::kI8);
  EXPECT_EQ(weights->layers[1].down_scale.shape[0], tied.hidden);
  EXPECT_EQ(weights->layers[0].qkv_scale.shape[0], weights->layers[0].qkv.front().shape[0]);
  EXPECT_EQ(weights->head.dtype, spec::DType::kBf16);  // Embeddings are looked up.
  EXPECT_FALSE(weights->head_scale.present());

  const auto untied = model("llama-bias-eps");
  const auto others = bind_weights(untied, store::plan_image(untied, spec::DType::kI8), window_);
  ASSERT_TRUE(others);
  EXPECT_EQ(others->head.dtype, spec::DType::kI8);
  EXPECT_EQ(others->head_scale.shape[0], untied.vocab);
  EXPECT_EQ(others->embedding.dtype, spec::DType::kBf16);
}

TEST_F(WeightsTest, ATiedHeadIsTheEmbedding) {
  const auto spec = model("qwen3-tied");
  const auto weights = bind_weights(spec, store::plan_image(spec, spec::DType::kF32), window_);
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->head.data, weights->embedding.data);
  EXPECT_TRUE(weights->layers[0].q_norm.present());
}

TEST_F(WeightsTest, NamesWhatIsMissing) {
  const auto spec = model("qwen3-tied");
  auto layout = store::plan_image(spec, spec::DType::kF32);
  std::erase_if(layout.tensors, [](const store::ImageTensor& tensor) {
    return tensor.role == store::Role::kGateUp && tensor.layer == 1;
  });
  const auto weights = bind_weights(spec, layout, window_);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kCorrupt);
  EXPECT_NE(weights.error().message.find("layer 1"), std::string::npos);
  EXPECT_NE(weights.error().message.find("the image has none"), std::string::npos);
}

}  // namespace
}  // namespace heddle::engine
