#include "memory/kv_store.h"

#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/fake/fake_device.h"
#include "memory/device_under_test.h"
#include "memory/kv_cache.h"

namespace heddle::memory {
namespace {

constexpr OwnerId kModelKv{3};
constexpr std::size_t kSmallPage = std::size_t{64} << 10U;
constexpr KvOrigin kFirst{.model = ModelId{1}};
constexpr KvOrigin kSecond{.model = ModelId{2}};

std::vector<PageId> numbered(std::uint64_t count) {
  std::vector<PageId> pages;
  for (std::uint64_t page = 0; page < count; ++page) {
    pages.emplace_back(page);
  }
  return pages;
}

BlockKey block_key(std::uint64_t number) {
  return {.low = number, .high = ~number};
}

/// A store of two pages beside six.
class KvStoreTest : public ::testing::Test {
 protected:
  /// A page that holds the block `number` alone is kept.
  bool keep(const KvOrigin& origin, std::uint64_t number, double value) {
    const PageId page = pool_.take(kModelKv, 1).value().front();
    if (store_.keep_page(kModelKv, page, origin, {block_key(number), std::nullopt}, value)) {
      return true;
    }
    pool_.put(kModelKv, {&page, 1});
    return false;
  }
  [[nodiscard]] bool has(const KvOrigin& origin, std::uint64_t number) const {
    return store_.contains(origin, block_key(number));
  }
  void TearDown() override {
    store_.check_invariants();
    pool_.check_invariants();
  }

  device::FakeDevice device_{kSmallPage, 8};
  PagePool pool_{device_, numbered(8)};
  KvStore store_{pool_, 2};
};

TEST_F(KvStoreTest, ExchangesAPageForAFreeOne) {
  const PageId page = pool_.take(kModelKv, 1).value().front();
  ASSERT_TRUE(store_.keep_page(kModelKv, page, kFirst, {block_key(1), std::nullopt}, 1));
  EXPECT_EQ(pool_.owner_of(page), kKvStoreOwner);
  EXPECT_EQ(pool_.free_count(), 6) << "who gave it has another";
  EXPECT_EQ(store_.page_of(kFirst, block_key(1)), page);
  EXPECT_FALSE(has(kSecond, 1)) << "of another model";
  EXPECT_FALSE(has({.model = ModelId{1}, .group = 1}, 1)) << "of other layers";
  const KvStore::Returning back = store_.take_out(kFirst, block_key(1));
  store_.give_back(back, kModelKv);
  EXPECT_EQ(back.page, page);
  EXPECT_EQ(back.keys, (SlotKeys{block_key(1), std::nullopt}));
  EXPECT_EQ(pool_.owner_of(page), kModelKv);
  EXPECT_EQ(pool_.free_count(), 5);
  EXPECT_FALSE(has(kFirst, 1));
  EXPECT_EQ(store_.counts().kept_pages, 1U);
  EXPECT_EQ(store_.counts().returned_pages, 1U);
  pool_.put(kModelKv, {&page, 1});
}

TEST_F(KvStoreTest, OfEqualOnesTheOldestGivesWay) {
  EXPECT_TRUE(keep(kFirst, 1, 5) && keep(kFirst, 2, 5));
  store_.touch(kFirst, block_key(1));
  EXPECT_TRUE(keep(kFirst, 3, 5));
  EXPECT_TRUE(has(kFirst, 1) && has(kFirst, 3));
  EXPECT_FALSE(has(kFirst, 2));
  EXPECT_EQ(store_.counts().displaced_pages, 1U);
}

TEST_F(KvStoreTest, WhatIsWorthMoreStaysLongerAndNotForEver) {
  EXPECT_TRUE(keep(kFirst, 1, 10));
  for (std::uint64_t number = 2; number <= 4; ++number) {
    EXPECT_TRUE(keep(kSecond, number, 4));  // 4, then 4 + 4, then 8 + 4.
    EXPECT_TRUE(has(kFirst, 1)) << number;
  }
  EXPECT_TRUE(keep(kSecond, 5, 4));
  EXPECT_FALSE(has(kFirst, 1)) << "10 is the least by now";
}

TEST_F(KvStoreTest, KeepsABlockOnce) {
  EXPECT_TRUE(keep(kFirst, 1, 1));
  EXPECT_FALSE(keep(kFirst, 1, 1));
  EXPECT_EQ(store_.held(), 1);
  EXPECT_EQ(pool_.free_count(), 6);
}

TEST_F(KvStoreTest, CopiesBlocksOntoPagesOfTheirOrigin) {
  const std::string one(kSmallPage / 2, 'a');
  const std::string two(kSmallPage / 2, 'b');
  store_.keep_block(kFirst, block_key(1), std::as_bytes(std::span(one)), 2, 1);
  store_.keep_block(kFirst, block_key(1), std::as_bytes(std::span(two)), 2, 1);
  store_.keep_block(kFirst, block_key(2), std::as_bytes(std::span(two)), 2, 1);
  store_.check_invariants();
  ASSERT_EQ(store_.held(), 1);
  const std::byte* at = device_.page_address(*store_.page_of(kFirst, block_key(2)));
  EXPECT_EQ(std::memcmp(at, one.data(), one.size()), 0);
  EXPECT_EQ(std::memcmp(at + one.size(), two.data(), two.size()), 0);
  store_.keep_block(kSecond, block_key(1), std::as_bytes(std::span(one)), 2, 1);
  EXPECT_EQ(store_.held(), 2);
  EXPECT_EQ(store_.counts().kept_blocks, 3U);
  store_.forget(ModelId{1});
  EXPECT_EQ(store_.held(), 1);
  EXPECT_FALSE(has(kFirst, 2));
  EXPECT_TRUE(has(kSecond, 1));
}

/// 1 KiB a token: a page has four blocks of 16 tokens.
KvGeometry quarters() {
  return kv_groups({.layers = 4, .kv_heads = 2, .head_dim = 32, .element_bytes = 2}, kSmallPage)
      .value()
      .front()
      .geometry;
}

/// Two caches of one device, whose models come and go by chance, against what each block holds.
TEST(KvStoreOfCaches, GivesBackWhatBlocksHeld) {
  const std::uint64_t seed = 20261128;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  DeviceUnderTest machine(device::Kind::kCpu, kSmallPage, 14);
  PagePool pool(machine.device(), numbered(14));
  CachedPages cached;
  KvStore store(pool, 6);
  std::map<std::uint64_t, std::optional<KvCache>> caches;
  std::map<std::uint64_t, std::vector<std::pair<KvBlockRef, BlockKey>>> used;
  std::uint64_t found = 0;
  const auto check = [&](std::uint64_t model, KvBlockRef block, const BlockKey& key) {
    const auto* first = caches.at(model)->address(block);
    const auto expected = static_cast<unsigned char>(key.low * 7 + model);
    ASSERT_EQ(static_cast<unsigned char>(first[0]), expected);
    ASSERT_EQ(static_cast<unsigned char>(first[quarters().block_bytes - 1]), expected);
  };
  for (int turn = 0; turn < 4000; ++turn) {
    const std::uint64_t model = 1 + rng.below(2);
    auto& cache = caches[model];
    if (!cache) {
      cache.emplace(pool,
                    OwnerId{model},
                    quarters(),
                    cached,
                    KvKeeper{.store = &store, .origin = {.model = ModelId{model}}});
    }
    const BlockKey key = block_key(rng.below(48));
    if (rng.below(8) == 0 && !used[model].empty()) {
      for (const auto& [block, held] : std::exchange(used[model], {})) {
        cache->free(block);
      }
    } else if (rng.below(40) == 0 && used[model].empty()) {
      cache.reset();
    } else {
      if (!cache->contains(key) && cache->stored(key) && cache->bring_back(key)) {
        ++found;
      }
      if (const auto block = cache->use(key)) {
        check(model, *block, key);
        used[model].emplace_back(*block, key);
      } else if (const auto fresh = cache->allocate()) {
        std::memset(cache->address(*fresh),
                    static_cast<int>((key.low * 7 + model) & 0xffU),
                    quarters().block_bytes);
        ASSERT_TRUE(cache->keep(*fresh, key));
        used[model].emplace_back(*fresh, key);
      }
    }
    store.check_invariants();
    pool.check_invariants();
    for (const auto& [id, one] : caches) {
      if (one) {
        one->check_invariants();
      }
    }
  }
  EXPECT_GT(found, 100U);
  EXPECT_GT(store.counts().kept_blocks, 10U);
  EXPECT_GT(store.counts().displaced_pages, 10U);
  for (auto& [model, blocks] : used) {
    for (const auto& [block, key] : blocks) {
      caches.at(model)->free(block);
    }
  }
}

}  // namespace
}  // namespace heddle::memory
