#include "engine/state_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kv_plan.h"
#include "ops/gated_delta.h"

namespace heddle::engine {
namespace {

using spec::Mixer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Five layers, of which the third is attention.
spec::ModelSpec hybrid_spec(std::int64_t key_heads, std::int64_t key_dim) {
  return {.hidden = 32,
          .layers = 5,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .vocab = 64,
          .max_position = 100,
          .window = {0, 0, 0, 0, 0},
          .linear = {.key_heads = key_heads,
                     .value_heads = 2 * key_heads,
                     .key_dim = key_dim,
                     .value_dim = 16,
                     .kernel = 4},
          .mixer = {Mixer::kDeltaRule,
                    Mixer::kDeltaRule,
                    Mixer::kAttention,
                    Mixer::kDeltaRule,
                    Mixer::kDeltaRule}};
}

std::vector<std::int64_t> heads_of(const std::vector<StatePart>& parts) {
  std::vector<std::int64_t> heads;
  for (const StatePart& part : parts) {
    heads.push_back(part.heads);
  }
  return heads;
}

TEST(StatePlan, SmallStatesShareAPage) {
  const spec::ModelSpec model = hybrid_spec(2, 8);
  const std::int64_t head = ops::DeltaHeadLayout(model.linear).bytes();
  const auto plan = plan_states(model, {.begin = 0, .end = 5}, 1U << 16U).value();
  ASSERT_EQ(plan.blocks_per_page.size(), 1U);
  EXPECT_EQ(plan.blocks_per_page[0], (1 << 16) / std::bit_ceil(static_cast<unsigned>(8 * head)));
  EXPECT_THAT(plan.parts[2], IsEmpty());
  ASSERT_EQ(plan.parts[4].size(), 1U);
  EXPECT_EQ(plan.parts[4][0].offset, 6 * head);
  EXPECT_EQ(plan.parts[4][0].heads, 2);
}

TEST(StatePlan, LargeOnesHaveSeveralAndNoHeadIsCut) {
  const spec::ModelSpec model = hybrid_spec(5, 16);
  const std::int64_t head = ops::DeltaHeadLayout(model.linear).bytes();
  constexpr std::size_t kPage = 8192;
  const std::int64_t per_page = static_cast<std::int64_t>(kPage) / head;
  ASSERT_EQ(per_page, 2);
  const auto plan = plan_states(model, {.begin = 0, .end = 5}, kPage).value();
  std::vector<std::int64_t> used(plan.blocks_per_page.size());
  for (std::size_t layer = 0; layer < 5; ++layer) {
    std::int64_t heads = 0;
    for (const StatePart& part : plan.parts[layer]) {
      EXPECT_EQ(part.offset, used[part.block] * head) << "one behind the other";
      used[part.block] += part.heads;
      heads += part.heads;
    }
    EXPECT_EQ(heads, layer == 2 ? 0 : 5);
  }
  EXPECT_THAT(heads_of(plan.parts[0]), ElementsAre(2, 2, 1));
  EXPECT_THAT(heads_of(plan.parts[1]), ElementsAre(1, 2, 2));
  for (std::size_t block = 0; block + 1 < used.size(); ++block) {
    EXPECT_EQ(used[block], per_page);
    EXPECT_EQ(plan.blocks_per_page[block], 1U);
  }
  EXPECT_LE(used.back() * head * plan.blocks_per_page.back(), static_cast<std::int64_t>(kPage));
}

TEST(StatePlan, APageHoldsAHeadAtLeast) {
  const auto plan = plan_states(hybrid_spec(1, 64), {.begin = 0, .end = 5}, 4096);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
  EXPECT_THAT(plan.error().message, HasSubstr("use larger pages"));
}

TEST(StatePlan, ModelsWithoutHaveNone) {
  spec::ModelSpec model = hybrid_spec(2, 8);
  model.linear = {};
  model.mixer.clear();
  EXPECT_THAT(plan_states(model, {.begin = 0, .end = 5}, 4096)->blocks_per_page, IsEmpty());
}

TEST(StatePlan, IsAGroupThatHasOneBlockWhateverTheLength) {
  const spec::ModelSpec model = hybrid_spec(2, 8);
  const KvPlan plan = plan_kv(model, {.begin = 0, .end = 5}, spec::DType::kF32, 1U << 16U).value();
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.kv_groups(), 1U);
  EXPECT_THAT(plan.groups[0].layers, ElementsAre(2));
  EXPECT_EQ(plan.groups[1].window, model.max_position) << "so it stays, and is no guest";
  EXPECT_EQ(plan.groups[1].geometry.blocks_for(1), 1);
  EXPECT_EQ(plan.groups[1].geometry.blocks_for(model.max_position), 1);
  EXPECT_EQ(plan.groups[1].geometry.block_bytes * plan.groups[1].geometry.blocks_per_page,
            1U << 16U);
}

}  // namespace
}  // namespace heddle::engine
