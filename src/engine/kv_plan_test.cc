#include "engine/kv_plan.h"

#include <set>

#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

spec::ModelSpec model_of(std::vector<std::int64_t> windows) {
  spec::ModelSpec model;
  model.layers = static_cast<std::int64_t>(windows.size());
  model.kv_heads = 2;
  model.head_dim = 16;
  model.window = std::move(windows);
  return model;
}

TEST(PlanKv, PutsLayersOfOneWindowTogether) {
  const auto model = model_of({0, 64, 0, 64, 64});
  const auto plan = plan_kv(model, all_layers(model), spec::DType::kBf16, 65536);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->groups.size(), 2U);
  EXPECT_EQ(plan->groups[0].window, 0);
  EXPECT_EQ(plan->groups[0].layers, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(plan->groups[1].window, 64);
  EXPECT_EQ(plan->groups[1].layers, (std::vector<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(plan->place(3).group, 1U);
  EXPECT_EQ(plan->place(3).layer_in_group, 1);
  EXPECT_EQ(plan->groups[1].geometry.token_bytes(), 3U * 2 * 2 * 16 * 2);
}

TEST(PlanKv, PutsLayersOfLikeHeadsTogether) {
  auto model = model_of({0, 0, 0});  // As where a window hides nothing.
  model.layer_rope = {spec::LayerRope::kLocal, spec::LayerRope::kModels, spec::LayerRope::kLocal};
  model.global_kv_heads = 1;
  model.global_head_dim = 64;
  const auto plan = plan_kv(model, all_layers(model), spec::DType::kBf16, 65536).value();
  ASSERT_EQ(plan.groups.size(), 2U);
  const std::size_t local = plan.place(0).group;
  const std::size_t global = plan.place(1).group;
  EXPECT_EQ(plan.place(2).group, local);
  EXPECT_NE(global, local);
  EXPECT_EQ(plan.groups[global].layers, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(plan.groups[global].geometry.token_bytes(), 2U * 64 * 2);
  EXPECT_EQ(plan.position_bytes(0), 2U * 2 * 16 * 2);
  EXPECT_EQ(plan.position_bytes(1), 2U * 64 * 2);
  EXPECT_EQ(plan.token_bytes(), 2 * 2 * 2 * 16 * 2 + 2 * 64 * 2);
}

// Each head of a token has 16 bytes and a scale of two.
TEST(PlanKv, InCodesAboutTwiceAsManyTokensFit) {
  auto model = model_of({0, 0, 64});
  const auto wide = plan_kv(model, all_layers(model), spec::DType::kBf16, 65536).value();
  for (const auto& [weights, kv] : {std::pair(spec::DType::kBf16, spec::KvType::kI8),
                                    std::pair(spec::DType::kF32, spec::KvType::kI8),
                                    std::pair(spec::DType::kI8, spec::KvType::kF8)}) {
    model.kv = kv;
    const auto plan = plan_kv(model, all_layers(model), weights, 65536).value();
    EXPECT_EQ(plan.dtype, kv == spec::KvType::kI8 ? spec::DType::kI8 : spec::DType::kF8);
    EXPECT_EQ(plan.position_bytes(0), 2U * 2 * 18);
    EXPECT_EQ(plan.token_bytes(), 3 * 2 * 2 * 18);
    const auto block = static_cast<std::size_t>(plan.groups[0].geometry.block_tokens);
    EXPECT_EQ(plan.groups[0].geometry.value_offset(), (2U * 18 * block + 15) / 16 * 16);
    const auto tokens = [](const KvPlan& of) {
      const memory::KvGeometry& geometry = of.groups[0].geometry;
      return static_cast<double>(geometry.block_tokens * geometry.blocks_per_page);
    };
    EXPECT_NEAR(tokens(plan) / tokens(wide), 32.0 / 18, 0.1);
  }
}

TEST(PlanKv, CoversItsRangeOnly) {
  const auto model = model_of({0, 64, 0, 64, 64});
  const auto plan = plan_kv(model, {.begin = 2, .end = 4}, spec::DType::kF32, 65536);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->groups.size(), 2U);
  EXPECT_EQ(plan->groups[0].layers, std::vector<std::int64_t>{2});
  EXPECT_EQ(plan->groups[1].layers, std::vector<std::int64_t>{3});
  EXPECT_EQ(plan->groups[0].geometry.token_bytes(), 2U * 2 * 16 * 4);
}

TEST(PlanKv, SplitsLayersWhoseTokensNeedTooMuch) {
  auto model = model_of(std::vector<std::int64_t>(8, 0));
  model.kv_heads = 8;
  model.head_dim = 128;
  // 8 layers of 2 * 8 * 128 * 2 = 4 KiB each, in pages of 16 KiB: no more than 4 layers a group.
  const auto plan = plan_kv(model, all_layers(model), spec::DType::kBf16, 16384);
  ASSERT_TRUE(plan);
  EXPECT_GE(plan->groups.size(), 2U);
  for (std::int64_t layer = 0; layer < 8; ++layer) {
    const auto& place = plan->place(layer);
    EXPECT_EQ(plan->groups[place.group].layers[static_cast<std::size_t>(place.layer_in_group)],
              layer);
  }
}

TEST(PlanKv, BlocksOfAllStagesHaveEquallyManyTokens) {
  auto model = model_of({0, 0, 24, 0, 24});
  for (const std::size_t page_bytes : {4096U, 65536U}) {
    std::set<std::int64_t> tokens;
    for (std::int64_t index = 0; index < 3; ++index) {
      const auto stage = spec::stage_of(model, {.index = index, .ends = {2, 4, 5}});
      const auto plan = plan_kv(stage, spec::own_layers(stage), spec::DType::kF32, page_bytes);
      ASSERT_TRUE(plan);
      EXPECT_EQ(plan->range, spec::own_layers(stage));
      for (const KvGroupPlan& group : plan->groups) {
        const memory::KvGeometry& geometry = group.geometry;
        tokens.insert(geometry.block_tokens);
        EXPECT_LE(static_cast<std::size_t>(geometry.block_tokens) * geometry.token_bytes(),
                  geometry.block_bytes);
      }
    }
    EXPECT_EQ(tokens.size(), 1U);
  }
}

TEST(PlanKv, RefusesAPageTooSmallForATokenOfALayer) {
  auto model = model_of({0});
  model.kv_heads = 64;
  model.head_dim = 256;
  const auto plan = plan_kv(model, all_layers(model), spec::DType::kF32, 4096);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::engine
