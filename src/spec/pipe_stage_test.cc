#include "spec/pipe_stage.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/memory_needs.h"

namespace heddle::spec {
namespace {

using testing::ElementsAre;

ModelSpec model_of(std::int64_t layers, std::int64_t vocab) {
  return {.hidden = 32,
          .layers = layers,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .intermediate = 64,
          .vocab = vocab,
          .max_position = 64,
          .window = std::vector<std::int64_t>(static_cast<std::size_t>(layers), 0)};
}

TEST(PipeStage, WholeModelIsTheOnlyStage) {
  const ModelSpec model = model_of(5, 64);
  EXPECT_EQ(stages_of(model), 1);
  EXPECT_EQ(own_layers(model), (LayerRange{0, 5}));
  EXPECT_TRUE(leads(model));
  EXPECT_TRUE(cut_layers(model, DType::kF32, 1)->empty());
}

TEST(PipeStage, StagesFollowEachOther) {
  const ModelSpec model = model_of(9, 64);
  const auto ends = cut_layers(model, DType::kF32, 4);
  ASSERT_TRUE(ends);
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    const ModelSpec stage = stage_of(model, {.index = i, .ends = *ends});
    EXPECT_EQ(stages_of(stage), 4);
    EXPECT_EQ(own_layers(stage).begin, next);
    EXPECT_GT(own_layers(stage).size(), 0);
    EXPECT_EQ(leads(stage), i == 0);
    next = own_layers(stage).end;
  }
  EXPECT_EQ(next, 9);
}

TEST(PipeStage, TheLeaderHasFewerLayersWhereItsVocabularyIsLarge) {
  EXPECT_THAT(*cut_layers(model_of(8, 8), DType::kF32, 2), ElementsAre(4, 8));
  EXPECT_THAT(*cut_layers(model_of(8, 100'000), DType::kF32, 2), ElementsAre(1, 8));
  EXPECT_THAT(*cut_layers(model_of(3, 100), DType::kBf16, 3), ElementsAre(1, 2, 3));
}

TEST(PipeStage, StagesHaveTheWeightsOfTheModel) {
  for (const bool tied : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8}) {
      ModelSpec model = model_of(7, 50);
      model.tied_embeddings = tied;
      const auto ends = cut_layers(model, dtype, 3);
      ASSERT_TRUE(ends);
      std::uint64_t bytes = 0;
      for (std::int64_t i = 0; i < 3; ++i) {
        bytes += weight_bytes(stage_of(model, {.index = i, .ends = *ends}), dtype);
      }
      EXPECT_EQ(bytes, weight_bytes(model, dtype));
    }
  }
}

TEST(PipeStage, MoreStagesThanLayersAreRefused) {
  const auto cut = cut_layers(model_of(3, 64), DType::kF32, 4);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kInvalidArgument);
  EXPECT_NE(cut.error().message.find("3 layers into 4 stages"), std::string::npos);
}

TEST(PipeStage, EncodersAreNotCut) {
  ModelSpec encoder = model_of(3, 64);
  encoder.encoder = {.positions = 16, .types = 1};
  const auto cut = cut_layers(encoder, DType::kF32, 2);
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message.find("only whole models are encoders"), std::string::npos);
}

TEST(PipeStage, KnowsWhatIsNoStage) {
  EXPECT_TRUE(is_stage({.index = 1, .ends = {2, 5}}, 5));
  EXPECT_FALSE(is_stage({.index = 2, .ends = {2, 5}}, 5));
  EXPECT_FALSE(is_stage({.index = -1, .ends = {2, 5}}, 5));
  EXPECT_FALSE(is_stage({.index = 0, .ends = {0, 5}}, 5));
  EXPECT_FALSE(is_stage({.index = 0, .ends = {2, 2, 5}}, 5));
  EXPECT_FALSE(is_stage({.index = 0, .ends = {2, 4}}, 5));
  EXPECT_FALSE(is_stage({.index = 1, .ends = {}}, 5));
}

}  // namespace
}  // namespace heddle::spec
