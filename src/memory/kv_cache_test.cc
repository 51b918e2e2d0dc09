#include "memory/kv_cache.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/fake/fake_device.h"
#include "memory/device_under_test.h"

namespace heddle::memory {
namespace {

constexpr OwnerId kOwner{3};
constexpr std::size_t kPage = std::size_t{64} << 10U;

/// 1 KiB a token, so that a page has four blocks of 16 tokens.
KvGeometry four_blocks() {
  return kv_groups({.layers = 4, .kv_heads = 2, .head_dim = 32, .element_bytes = 2}, kPage)
      .value()
      .front()
      .geometry;
}

BlockKey key(std::uint64_t number) {
  return {.low = number, .high = ~number};
}

std::vector<PageId> first_pages(std::uint64_t count) {
  std::vector<PageId> pages;
  for (std::uint64_t page = 0; page < count; ++page) {
    pages.emplace_back(page);
  }
  return pages;
}

class KvCacheTest : public ::testing::Test {
 protected:
  std::vector<KvBlockRef> allocate(KvCache& cache, int count) {
    std::vector<KvBlockRef> blocks;
    for (int i = 0; i < count; ++i) {
      blocks.push_back(cache.allocate().value());
    }
    return blocks;
  }

  device::FakeDevice device_{kPage, 6};
  PagePool pool_{device_, first_pages(6)};
  CachedPages cached_{};
};

TEST_F(KvCacheTest, TakesAPageOnlyWhenAllAreFull) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 5);
  EXPECT_EQ(blocks[0], (KvBlockRef{PageId(0), 0}));
  EXPECT_EQ(blocks[3], (KvBlockRef{PageId(0), 3}));
  EXPECT_EQ(blocks[4], (KvBlockRef{PageId(1), 0}));
  EXPECT_EQ(cache.pages_used(), 2);
  EXPECT_EQ(cache.blocks_used(), 5);
  EXPECT_EQ(cache.blocks_spare(), 3);
  EXPECT_EQ(pool_.owned_count(kOwner), 2);
  EXPECT_EQ(cache.address(blocks[4]), device_.page_address(PageId(1)));
  EXPECT_EQ(cache.address(blocks[3]) - cache.address(blocks[0]), 3 * 16 * 1024);
}

TEST_F(KvCacheTest, AFreedPageGoesBackWithItsLastBlock) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 8);
  for (const int i : {4, 5, 7}) {
    cache.free(blocks[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(cache.pages_used(), 2);
  cache.free(blocks[6]);
  EXPECT_EQ(cache.pages_used(), 1);
  EXPECT_EQ(pool_.owner_of(PageId(1)), OwnerId{});
}

TEST_F(KvCacheTest, NewBlocksGoToTheFullestPage) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 12);
  cache.free(blocks[0]);  // Page 0 has 3 blocks left, page 1 one, page 2 two.
  for (const int i : {5, 6, 7, 8, 9}) {
    cache.free(blocks[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(cache.allocate().value(), (KvBlockRef{PageId(0), 0}));
  EXPECT_EQ(cache.allocate().value().page, PageId(2));
  EXPECT_EQ(cache.allocate().value().page, PageId(2));
  EXPECT_EQ(cache.allocate().value().page, PageId(1)) << "only when the others are full";
  cache.check_invariants();
}

TEST_F(KvCacheTest, RunsOutAsAnErrorAndRecovers) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 24);
  const auto refused = cache.allocate();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(cache.blocks_used(), 24);
  cache.free(blocks[10]);
  EXPECT_EQ(cache.allocate().value(), blocks[10]);
}

TEST_F(KvCacheTest, TwoCachesNeverShareAPageAndReturnAllAtTheEnd) {
  {
    KvCache growing(pool_, kOwner, four_blocks(), cached_);
    KvCache cached(pool_, OwnerId(4), four_blocks(), cached_);
    const KvBlockRef first = growing.allocate().value();
    const KvBlockRef second = cached.allocate().value();
    EXPECT_NE(first.page, second.page);
    EXPECT_EQ(pool_.owner_of(second.page), OwnerId(4));
  }
  EXPECT_EQ(pool_.free_count(), 6);
  pool_.check_invariants();
}

TEST_F(KvCacheTest, AKeptBlockIsFoundByItsKeyAndShared) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 2);
  EXPECT_FALSE(cache.use(key(1)));
  EXPECT_TRUE(cache.keep(blocks[0], key(1)));
  EXPECT_FALSE(cache.keep(blocks[1], key(1))) << "one block a key";
  EXPECT_EQ(cache.use(key(1)), blocks[0]);
  cache.free(blocks[0]);
  EXPECT_EQ(cache.blocks_used(), 2) << "the other user is still there";
  cache.free(blocks[0]);
  EXPECT_EQ(cache.blocks_used(), 1);
  EXPECT_EQ(cache.blocks_idle(), 1);
  EXPECT_EQ(cache.pages_used(), 1) << "blocks[1] is in use on the same page";
  cache.free(blocks[1]);
  EXPECT_EQ(cache.pages_used(), 0);
  EXPECT_EQ(cache.pages_cached(), 1);
  EXPECT_EQ(cached_.count(), 1);
  EXPECT_EQ(cache.use(key(1)), blocks[0]);
  EXPECT_EQ(cache.pages_used(), 1);
  EXPECT_EQ(cached_.count(), 0);
  cache.check_invariants();
}

TEST_F(KvCacheTest, NewBlocksDoNotGoToCachedPages) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const KvBlockRef kept = cache.allocate().value();
  ASSERT_TRUE(cache.keep(kept, key(1)));
  cache.free(kept);
  EXPECT_NE(cache.allocate().value().page, kept.page);
  EXPECT_EQ(cache.pages_cached(), 1);
}

// What is cached is there for the taking: first idle blocks on pages in use, which none but their
// own cache can use, then the page used longest ago, whosever it is.
TEST_F(KvCacheTest, IdleBlocksMakeWayThenCachedPagesLeastRecentlyUsedFirst) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  KvCache other(pool_, OwnerId(4), four_blocks(), cached_);
  const auto mine = allocate(cache, 8);
  const auto others = allocate(other, 16);
  for (const int i : {0, 4, 5}) {
    ASSERT_TRUE(cache.keep(mine[static_cast<std::size_t>(i)], key(static_cast<std::uint64_t>(i))));
  }
  ASSERT_TRUE(other.keep(others[0], key(0)));
  for (const int i : {0, 1, 2, 3, 4, 5}) {  // Page 0 is cached, page 1 has two idle blocks.
    cache.free(mine[static_cast<std::size_t>(i)]);
  }
  for (const int i : {0, 1, 2, 3}) {
    other.free(others[static_cast<std::size_t>(i)]);
  }
  ASSERT_EQ(pool_.free_count(), 0);
  ASSERT_EQ(cached_.count(), 2);
  cache.free(cache.use(key(0)).value());  // Now the other's page is the older one.

  EXPECT_EQ(cache.allocate().value(), mine[4]) << "idle longest";
  EXPECT_FALSE(cache.contains(key(4)));
  EXPECT_EQ(cache.allocate().value(), mine[5]);
  EXPECT_EQ(cached_.count(), 2);
  const KvBlockRef first = cache.allocate().value();
  EXPECT_EQ(first.page, others[0].page);
  EXPECT_FALSE(other.contains(key(0)));
  EXPECT_TRUE(cache.contains(key(0)));
  allocate(cache, 3);
  const KvBlockRef second = cache.allocate().value();
  EXPECT_EQ(second.page, mine[0].page);
  EXPECT_FALSE(cache.contains(key(0)));
  EXPECT_EQ(cached_.dropped()[static_cast<std::size_t>(ledger::DropReason::kKv)], 2U);
  allocate(cache, 3);
  EXPECT_FALSE(cache.allocate());
  cache.check_invariants();
  other.check_invariants();
}

using KvCacheDeathTest = KvCacheTest;

TEST_F(KvCacheTest, WhatIsGivenUpMakesRoomAndNothingElseDoes) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 4);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(cache.keep(blocks[i], key(i)));
  }
  EXPECT_FALSE(cache.oldest_idle());
  cache.give_up(key(0), std::nullopt);
  EXPECT_TRUE(cache.contains(key(0))) << "it is used";
  for (const KvBlockRef block : blocks) {
    cache.free(block);
  }
  EXPECT_EQ(cache.oldest_idle()->key, key(0));
  cache.give_up(key(0), ledger::DropReason::kBound);
  EXPECT_EQ(cache.oldest_idle()->key, key(1));
  EXPECT_EQ(cache.pages_cached(), 1) << "the page has others";
  cache.give_up(key(1), std::nullopt);
  cache.give_up(key(2), ledger::DropReason::kBound);
  EXPECT_EQ(cache.pages_cached(), 0);
  EXPECT_EQ(pool_.free_count(), 6);
  EXPECT_EQ(cached_.dropped()[static_cast<std::size_t>(ledger::DropReason::kBound)], 1U);
  cache.check_invariants();
}

TEST_F(KvCacheTest, ABlockIsUnkeptForItsOnlyUser) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto block = cache.allocate().value();
  ASSERT_TRUE(cache.keep(block, key(1)));
  ASSERT_EQ(cache.use(key(1)), block);
  EXPECT_FALSE(cache.unkeep(block));
  cache.free(block);
  EXPECT_TRUE(cache.unkeep(block));
  EXPECT_FALSE(cache.contains(key(1)));
  cache.free(block);
  EXPECT_EQ(pool_.free_count(), 6) << "nothing of it is kept";
}

TEST_F(KvCacheDeathTest, FreeingTwiceIsABug) {
  KvCache cache(pool_, kOwner, four_blocks(), cached_);
  const auto blocks = allocate(cache, 2);
  cache.free(blocks[0]);
  EXPECT_DEATH(cache.free(blocks[0]), "users > 0");
  EXPECT_DEATH(cache.free({PageId(5), 0}), "found");
  EXPECT_DEATH(cache.free({blocks[1].page, 4}), "blocks_per_page");
}

// Filling to the brim, freeing all but a few blocks at random and then running a while must pull
// the survivors together: that is what lends memory to others.
TEST_F(KvCacheTest, FullestFirstReallyEmptiesPages) {
  device::FakeDevice device(kPage, 64);
  PagePool pool(device, first_pages(64));
  CachedPages cached;
  KvCache cache(pool, kOwner, four_blocks(), cached);
  Rng rng(7);
  std::vector<KvBlockRef> blocks = allocate(cache, 256);
  const auto free_one = [&] {
    const std::size_t at = rng.below(blocks.size());
    cache.free(blocks[at]);
    blocks[at] = blocks.back();
    blocks.pop_back();
  };
  while (blocks.size() > 64) {
    free_one();
  }
  const std::int64_t scattered = cache.pages_used();
  EXPECT_GT(scattered, 32) << "a quarter of the blocks, left anywhere, holds most pages";
  for (int i = 0; i < 2000; ++i) {
    free_one();
    blocks.push_back(cache.allocate().value());
  }
  EXPECT_LE(cache.pages_used(), 28) << "16 would be perfect";
  cache.check_invariants();
}

/// Two models over one pool on a real device, with pages coming and going beside them.
/// Every block is filled with its own pattern; a pattern that changes is two owners of one byte.
/// Some are kept under a key and used again by it, by several at a time.
class Household {
 public:
  Household(DeviceUnderTest& memory, std::uint64_t seed)
      : rng_(seed), memory_(memory), pool_(memory.device(), first_pages(24)) {
    for (const std::uint64_t owner : {1U, 2U}) {
      caches_.push_back(std::make_unique<KvCache>(pool_, OwnerId(owner), four_blocks(), cached_));
    }
  }

  void step() {
    switch (rng_.below(13)) {
      case 11:
        unkeep();
        break;
      case 12:
        give_up();
        break;
      case 8:
        keep();
        break;
      case 9:
        use();
        break;
      case 10:
        trim();
        break;
      case 0:
        exchange();
        break;
      case 1:
      case 2:
      case 3:
        release();
        break;
      default:
        allocate();
    }
    pool_.check_invariants();
    std::int64_t owned = 0;
    std::int64_t cached = 0;
    for (const auto& cache : caches_) {
      cache->check_invariants();
      owned += cache->pages_used() + cache->pages_cached();
      cached += cache->pages_cached();
    }
    ASSERT_EQ(cached_.count(), cached);
    ASSERT_EQ(pool_.size() + std::ssize(outside_), 24);
    ASSERT_EQ(pool_.size(), pool_.free_count() + owned);
  }

 private:
  struct Block {
    std::size_t cache = 0;
    KvBlockRef ref{};
    unsigned char pattern = 0;
    std::optional<BlockKey> key{};
  };

  void allocate() {
    const std::size_t cache = rng_.below(2);
    const bool possible = pool_.free_count() + cached_.count() > 0 ||
                          caches_[cache]->blocks_spare() + caches_[cache]->blocks_idle() > 0;
    const auto ref = caches_[cache]->allocate();
    ASSERT_EQ(ref.has_value(), possible);
    if (ref) {
      const auto pattern = static_cast<unsigned char>(rng_.next());
      memory_.fill(caches_[cache]->address(*ref), pattern, four_blocks().block_bytes);
      blocks_.push_back({.cache = cache, .ref = *ref, .pattern = pattern});
    }
  }

  void release() {
    if (blocks_.empty()) {
      return;
    }
    const std::size_t at = rng_.below(blocks_.size());
    const Block block = blocks_[at];
    const std::byte* const bytes =
        memory_.read(caches_[block.cache]->address(block.ref), four_blocks().block_bytes);
    for (std::size_t i = 0; i < four_blocks().block_bytes; i += 509) {
      ASSERT_EQ(bytes[i], std::byte{block.pattern});
    }
    caches_[block.cache]->free(block.ref);
    blocks_[at] = blocks_.back();
    blocks_.pop_back();
  }

  void keep() {
    if (blocks_.empty()) {
      return;
    }
    Block& block = blocks_[rng_.below(blocks_.size())];
    const BlockKey fresh = key(++keys_);
    if (!block.key) {
      ASSERT_TRUE(caches_[block.cache]->keep(block.ref, fresh));
      block.key = fresh;
      patterns_[fresh] = block;
    }
  }

  void use() {
    if (patterns_.empty()) {
      return;
    }
    const auto found =
        std::next(patterns_.begin(), static_cast<std::ptrdiff_t>(rng_.below(patterns_.size())));
    const auto ref = caches_[found->second.cache]->use(found->first);
    const bool held = std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return block.key == found->first;
    });
    ASSERT_TRUE(ref || !held) << "what is used is not dropped";
    if (ref) {
      blocks_.push_back(found->second);
      ASSERT_EQ(*ref, found->second.ref);
    } else {
      patterns_.erase(found);
    }
  }

  void unkeep() {
    if (blocks_.empty()) {
      return;
    }
    Block& block = blocks_[rng_.below(blocks_.size())];
    if (block.key) {
      const auto users = std::ranges::count(blocks_, block.key, &Block::key);
      ASSERT_EQ(caches_[block.cache]->unkeep(block.ref), users == 1);
      if (users == 1) {
        ASSERT_FALSE(caches_[block.cache]->contains(*block.key));
        patterns_.erase(*block.key);
        block.key.reset();
      }
    }
  }

  void give_up() {
    if (patterns_.empty()) {
      return;
    }
    const auto found =
        std::next(patterns_.begin(), static_cast<std::ptrdiff_t>(rng_.below(patterns_.size())));
    KvCache& cache = *caches_[found->second.cache];
    const auto oldest = cache.oldest_idle();
    ASSERT_EQ(oldest.has_value(), cache.blocks_idle() > 0);
    const BlockKey key = oldest && rng_.below(2) == 0 ? oldest->key : found->first;
    const bool held = std::ranges::count(blocks_, std::optional(key), &Block::key) > 0;
    const std::int64_t idle = cache.blocks_idle() - (cache.contains(key) && !held ? 1 : 0);
    cache.give_up(key,
                  rng_.below(2) == 0 ? std::nullopt : std::optional(ledger::DropReason::kBound));
    ASSERT_EQ(cache.contains(key), held);
    ASSERT_EQ(cache.blocks_idle(), idle);
  }

  void trim() {
    const std::int64_t before = cached_.count();
    ASSERT_EQ(cached_.drop_oldest(ledger::DropReason::kBound), before > 0);
    ASSERT_EQ(cached_.count(), std::max<std::int64_t>(before - 1, 0));
  }

  void exchange() {
    const auto count = static_cast<std::int64_t>(rng_.below(6));
    if (const auto given = pool_.surrender(count)) {
      for (const PageId page : *given) {
        memory_.fill(pool_.device().page_address(page), 0, kPage);  // Somebody may write them now.
        outside_.push_back(page);
      }
    }
    const std::size_t back = rng_.below(outside_.size() + 1);
    pool_.adopt(std::span(outside_).last(back));
    outside_.resize(outside_.size() - back);
  }

  Rng rng_;
  DeviceUnderTest& memory_;
  PagePool pool_;
  CachedPages cached_{};
  std::uint64_t keys_ = 0;
  std::map<BlockKey, Block> patterns_{};  ///< Of blocks that were kept, and may be gone.
  std::vector<std::unique_ptr<KvCache>> caches_{};
  std::vector<Block> blocks_{};
  std::vector<PageId> outside_{};
};

class KvCacheProperty : public testing::TestWithParam<device::Kind> {};

TEST_P(KvCacheProperty, BlocksAreTheirOwnersAloneUnderRandomOperations) {
  DeviceUnderTest memory(GetParam(), kPage, 24);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Household household(memory, seed);
    for (int i = 0; i < 500; ++i) {
      household.step();
      if (HasFailure()) {
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KvCacheProperty, kDeviceKinds, kind_name);

}  // namespace
}  // namespace heddle::memory
