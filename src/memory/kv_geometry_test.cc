#include "memory/kv_geometry.h"

#include <bit>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::memory {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

TEST(KvGeometry, Llama8bOnTwoMebibytePages) {
  const auto groups =
      kv_groups({.layers = 32, .kv_heads = 8, .head_dim = 128, .element_bytes = 2}, 2 * kMiB);
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 1U);
  const KvGeometry& geometry = groups->front().geometry;
  EXPECT_EQ(geometry.token_bytes(), 128 * kKiB);
  EXPECT_EQ(geometry.blocks_per_page, 1U);
  EXPECT_EQ(geometry.block_tokens, 16);
  EXPECT_EQ(geometry.token_stride(), 256U);
  EXPECT_EQ(geometry.head_stride(), 16 * 256U);
  EXPECT_EQ(geometry.value_offset(), 8 * 16 * 256U);
  EXPECT_EQ(geometry.layer_stride(), 64 * kKiB);
  EXPECT_EQ(geometry.pages_for(1), 1);
  EXPECT_EQ(geometry.pages_for(16), 1);
  EXPECT_EQ(geometry.pages_for(17), 2);
  EXPECT_EQ(geometry.pages_for(0), 0);
}

TEST(KvGeometry, ALargeModelSplitsIntoEvenGroups) {
  // 80 layers of 8 heads: 320 KiB a token in bf16.
  const auto groups =
      kv_groups({.layers = 80, .kv_heads = 8, .head_dim = 128, .element_bytes = 2}, 2 * kMiB);
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 3U);
  EXPECT_EQ((*groups)[0].first_layer, 0);
  EXPECT_EQ((*groups)[1].first_layer, 26);
  EXPECT_EQ((*groups)[2].first_layer, 53);
  EXPECT_EQ((*groups)[2].geometry.shape.layers, 27);
}

TEST(KvGeometry, ATinyModelHasManyBlocksToAPage) {
  // 4 layers of 2 heads of 32: 1 KiB a token in bf16.
  const auto groups =
      kv_groups({.layers = 4, .kv_heads = 2, .head_dim = 32, .element_bytes = 2}, 64 * kKiB);
  ASSERT_TRUE(groups);
  const KvGeometry& geometry = groups->front().geometry;
  EXPECT_EQ(geometry.blocks_per_page, 4U);
  EXPECT_EQ(geometry.block_tokens, 16);
  EXPECT_EQ(geometry.pages_for(65), 2);
}

TEST(KvGeometry, TokensOfABlockNeedNotBeAPowerOfTwo) {
  // 5 layers of 3 heads of 20: 1200 bytes a token in bf16, 54 to the page.
  const auto groups =
      kv_groups({.layers = 5, .kv_heads = 3, .head_dim = 20, .element_bytes = 2}, 64 * kKiB);
  ASSERT_TRUE(groups);
  EXPECT_EQ(groups->front().geometry.blocks_per_page, 2U);
  EXPECT_EQ(groups->front().geometry.block_tokens, 27);
}

// A byte for each number: elements and values begin where kernels can move sixteen bytes at once.
TEST(KvGeometry, ScalesAreBehindAllElementsOfKeysAndOfValues) {
  const auto groups =
      kv_groups({.layers = 3, .kv_heads = 3, .head_dim = 32, .element_bytes = 1, .scale_bytes = 2},
                64 * kKiB);
  ASSERT_TRUE(groups);
  const KvGeometry& geometry = groups->front().geometry;
  const auto tokens = static_cast<std::size_t>(geometry.block_tokens);
  EXPECT_EQ(geometry.token_bytes(), 2U * 3 * 3 * 34);
  EXPECT_EQ(geometry.token_stride(), 32U);
  EXPECT_EQ(geometry.scale_offset(), 3 * 32 * tokens);
  EXPECT_EQ(geometry.value_offset() % 16, 0U);
  EXPECT_LT(geometry.value_offset() - 3 * 34 * tokens, 16U);
  EXPECT_LE(3 * geometry.layer_stride(), geometry.block_bytes);
  EXPECT_GT(3 * (geometry.layer_stride() + 2U * 3 * 34 + 32), geometry.block_bytes);
}

TEST(KvGeometry, ASmallPageHoldsFewTokensAndThenFewLayers) {
  const KvShape shape{.layers = 8, .kv_heads = 4, .head_dim = 64, .element_bytes = 4};  // 16 KiB
  const auto few_tokens = kv_groups(shape, 64 * kKiB);
  ASSERT_TRUE(few_tokens);
  EXPECT_EQ(few_tokens->front().geometry.block_tokens, 4);
  const auto few_layers = kv_groups(shape, 4 * kKiB);
  ASSERT_TRUE(few_layers);
  EXPECT_EQ(few_layers->size(), 4U);
  EXPECT_EQ(few_layers->front().geometry.block_tokens, 1);
  const auto refused = kv_groups(shape, 1 * kKiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "lay out KV: one token of one layer needs 2048 bytes and a page has 1024; use larger "
            "pages");
}

TEST(KvGeometry, NamesADimensionThatCannotBe) {
  const auto refused =
      kv_groups({.layers = 4, .kv_heads = -2, .head_dim = 32, .element_bytes = 2}, 64 * kKiB);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("kv_heads is -2"));
  EXPECT_FALSE(kv_groups({.layers = INT64_MAX, .kv_heads = 2, .head_dim = 32, .element_bytes = 2},
                         64 * kKiB));
}

TEST(KvGeometryProperty, EveryShapeIsCoveredAndFits) {
  Rng rng(1);
  int laid_out = 0;
  for (int i = 0; i < 5000; ++i) {
    const KvShape shape{.layers = static_cast<std::int64_t>(1 + rng.below(100)),
                        .kv_heads = static_cast<std::int64_t>(1 + rng.below(40)),
                        .head_dim = static_cast<std::int64_t>(1 + rng.below(256)),
                        .element_bytes = rng.below(2) == 0 ? 2U : 4U};
    const std::size_t page = std::size_t{4096} << rng.below(10);
    SCOPED_TRACE("draw " + std::to_string(i));
    const auto groups = kv_groups(shape, page);
    if (!groups) {
      EXPECT_GT(2 * static_cast<std::size_t>(shape.kv_heads * shape.head_dim) * shape.element_bytes,
                page);
      continue;
    }
    ++laid_out;
    std::int64_t next = 0;
    for (const KvGroup& group : *groups) {
      const KvGeometry& geometry = group.geometry;
      ASSERT_EQ(group.first_layer, next);
      next += geometry.shape.layers;
      ASSERT_TRUE(std::has_single_bit(geometry.blocks_per_page));
      ASSERT_EQ(geometry.block_bytes * geometry.blocks_per_page, page);
      const std::size_t used =
          geometry.layer_stride() * static_cast<std::size_t>(geometry.shape.layers);
      ASSERT_EQ(used, geometry.token_bytes() * static_cast<std::size_t>(geometry.block_tokens));
      ASSERT_LE(used, geometry.block_bytes);
      ASSERT_GT(used + geometry.token_bytes(), geometry.block_bytes) << "one more token would fit";
      ASSERT_TRUE(geometry.token_bytes() <= 128 * kKiB || geometry.shape.layers == 1);
      ASSERT_LE(geometry.block_tokens, 32);
      ASSERT_TRUE(geometry.block_tokens >= 16 || geometry.blocks_per_page == 1);
      ASSERT_LE(std::abs(geometry.shape.layers - groups->front().geometry.shape.layers), 1);
    }
    ASSERT_EQ(next, shape.layers);
  }
  EXPECT_GT(laid_out, 1000);
}

}  // namespace
}  // namespace heddle::memory
