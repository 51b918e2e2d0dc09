#include "memory/cached_pages.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "memory/kv_cache.h"

namespace heddle::memory {
namespace {

constexpr std::size_t kPage = std::size_t{64} << 10U;

TEST(CachedPages, DropsInOrderOfLastUseAndCountsWhy) {
  device::FakeDevice device(kPage, 3);
  PagePool pool(device, std::vector<PageId>{PageId(0), PageId(1), PageId(2)});
  const KvGeometry one_block =
      kv_groups({.layers = 4, .kv_heads = 8, .head_dim = 32, .element_bytes = 2}, kPage)
          .value()
          .front()
          .geometry;
  ASSERT_EQ(one_block.blocks_per_page, 1U);
  CachedPages cached;
  EXPECT_FALSE(cached.drop_oldest(ledger::DropReason::kKv));
  {
    KvCache cache(pool, OwnerId(1), one_block, cached);
    std::vector<KvBlockRef> blocks;
    for (std::uint64_t i = 0; i < 3; ++i) {
      blocks.push_back(cache.allocate().value());
      ASSERT_TRUE(cache.keep(blocks.back(), {.low = i}));
    }
    for (const std::size_t i : {1U, 2U, 0U}) {
      cache.free(blocks[i]);
    }
    EXPECT_EQ(cached.count(), 3);
    EXPECT_TRUE(cached.drop_oldest(ledger::DropReason::kLoad));
    EXPECT_FALSE(cache.contains({.low = 1}));
    EXPECT_TRUE(cached.drop_oldest(ledger::DropReason::kBound));
    EXPECT_FALSE(cache.contains({.low = 2}));
    EXPECT_TRUE(cache.contains({.low = 0}));
    EXPECT_EQ(pool.free_count(), 2);
  }
  EXPECT_EQ(cached.count(), 0);
  EXPECT_EQ(pool.free_count(), 3);
  EXPECT_EQ(cached.dropped(), (ledger::DropCounts{0, 1, 1, 1}));
}

TEST(CachedPages, EveryReasonHasAName) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < ledger::kDropReasons; ++i) {
    names.insert(name(static_cast<ledger::DropReason>(i)));
  }
  EXPECT_EQ(names.size(), ledger::kDropReasons);
}

}  // namespace
}  // namespace heddle::memory
