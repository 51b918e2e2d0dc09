#include "memory/page_pool.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/fake/fake_device.h"

namespace heddle::memory {
namespace {

using ::testing::HasSubstr;

constexpr OwnerId kWeights{1};
constexpr OwnerId kKv{2};

std::vector<PageId> ids(std::initializer_list<std::uint64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

std::vector<PageId> range(std::uint64_t begin, std::uint64_t end) {
  std::vector<PageId> pages;
  for (std::uint64_t page = begin; page < end; ++page) {
    pages.emplace_back(page);
  }
  return pages;
}

class PagePoolTest : public ::testing::Test {
 protected:
  device::FakeDevice device_{4096, 32};
  PagePool pool_{device_, range(8, 24)};
};

TEST_F(PagePoolTest, TakesTheLowestPagesFirst) {
  EXPECT_EQ(pool_.take(kKv, 2).value(), ids({8, 9}));
  EXPECT_EQ(pool_.take(kKv, 1).value(), ids({10}));
  EXPECT_EQ(pool_.owner_of(PageId(9)), kKv);
  EXPECT_EQ(pool_.owner_of(PageId(11)), OwnerId{});
  EXPECT_EQ(pool_.owned_count(kKv), 3);
  EXPECT_EQ(pool_.free_count(), 13);
  pool_.check_invariants();
}

TEST_F(PagePoolTest, PrefersARunThatIsLongEnoughAndElseTakesWhatThereIs) {
  ASSERT_TRUE(pool_.take(kKv, 16));
  pool_.put(kKv, ids({8, 9, 12, 13, 14, 20}));
  EXPECT_EQ(pool_.take(kWeights, 3).value(), ids({12, 13, 14}));
  EXPECT_EQ(pool_.take(kWeights, 3).value(), ids({8, 9, 20}));
  pool_.check_invariants();
}

TEST_F(PagePoolTest, RefusesWithTheNumbersAndChangesNothing) {
  ASSERT_TRUE(pool_.take(kKv, 10));
  const auto refused = pool_.take(kWeights, 7);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message, "take 7 pages for lease 1: 6 of 16 pages are free");
  EXPECT_EQ(pool_.free_count(), 6);
  EXPECT_FALSE(pool_.surrender(7));
  EXPECT_EQ(pool_.owned_count(kWeights), 0);
}

TEST_F(PagePoolTest, ExchangesPagesWithTheHost) {
  pool_.adopt(ids({0, 2, 1}), kWeights);
  EXPECT_EQ(pool_.surrender(3).value(), ids({23, 22, 21})) << "from the far end";
  EXPECT_EQ(pool_.size(), 16);
  EXPECT_EQ(pool_.owner_of(PageId(2)), kWeights);
  EXPECT_FALSE(pool_.contains(PageId(22)));
  pool_.adopt(ids({30}));
  pool_.surrender(kWeights, ids({0, 1, 2}));
  EXPECT_EQ(pool_.owned_count(kWeights), 0);
  EXPECT_EQ(pool_.free_count(), 14);
  EXPECT_EQ(pool_.size(), 14);
  pool_.check_invariants();
}

using PagePoolDeathTest = PagePoolTest;

TEST_F(PagePoolDeathTest, APageHasOneOwner) {
  ASSERT_TRUE(pool_.take(kKv, 2));
  EXPECT_DEATH(pool_.put(kWeights, ids({8})), "owner_of");
  EXPECT_DEATH(pool_.put(kKv, ids({8, 8})), "owner_of");
  EXPECT_DEATH(pool_.put(kKv, ids({10})), "owner_of");
  EXPECT_DEATH(pool_.adopt(ids({8})), "kElsewhere");
  EXPECT_DEATH(pool_.adopt(ids({32})), "size");
  EXPECT_DEATH(pool_.surrender(kKv, ids({24})), "contains");
  EXPECT_DEATH((void)pool_.take(OwnerId{}, 1), "kNobody");
}

/// Pages of one owner, chosen at random.
std::vector<PageId> some_of(Rng& rng, const std::set<PageId>& pages) {
  std::vector<PageId> chosen;
  for (const PageId page : pages) {
    if (rng.below(2) == 0) {
      chosen.push_back(page);
    }
  }
  for (std::size_t i = chosen.size(); i > 1; --i) {
    std::swap(chosen[i - 1], chosen[rng.below(i)]);
  }
  return chosen;
}

// A naive book of sets, one per owner; set 0 is free, kHost is what the host has.
TEST(PagePoolProperty, PagesAreConservedUnderRandomOperations) {
  constexpr std::uint64_t kPages = 48;
  constexpr std::uint64_t kHost = 9;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    device::FakeDevice device(4096, kPages);
    PagePool pool(device, {});
    std::map<std::uint64_t, std::set<PageId>> book;
    const std::vector<PageId> all = range(0, kPages);
    book[kHost].insert(all.begin(), all.end());
    const auto move = [&](std::uint64_t from, std::uint64_t to, const std::vector<PageId>& pages) {
      for (const PageId page : pages) {
        ASSERT_EQ(book[from].erase(page), 1U);
        ASSERT_TRUE(book[to].insert(page).second);
      }
    };
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t owner = 1 + rng.below(4);
      const auto count = static_cast<std::int64_t>(rng.below(20));
      const bool enough = count <= std::ssize(book[0]);
      switch (rng.below(6)) {
        case 0: {
          const auto taken = pool.take(OwnerId(owner), count);
          ASSERT_EQ(taken.has_value(), enough);
          move(0, owner, taken ? *taken : std::vector<PageId>{});
          break;
        }
        case 1: {
          const auto pages = some_of(rng, book[owner]);
          pool.put(OwnerId(owner), pages);
          move(owner, 0, pages);
          break;
        }
        case 2: {
          const auto pages = some_of(rng, book[kHost]);
          pool.adopt(pages);
          move(kHost, 0, pages);
          break;
        }
        case 3: {
          const auto pages = some_of(rng, book[kHost]);
          pool.adopt(pages, OwnerId(owner));
          move(kHost, owner, pages);
          break;
        }
        case 4: {
          const auto given = pool.surrender(count);
          ASSERT_EQ(given.has_value(), enough);
          move(0, kHost, given ? *given : std::vector<PageId>{});
          break;
        }
        default: {
          const auto pages = some_of(rng, book[owner]);
          pool.surrender(OwnerId(owner), pages);
          move(owner, kHost, pages);
        }
      }
      pool.check_invariants();
      ASSERT_EQ(pool.size(), static_cast<std::int64_t>(kPages) - std::ssize(book[kHost]));
      ASSERT_EQ(pool.free_count(), std::ssize(book[0]));
      for (const auto& [holder, pages] : book) {
        for (const PageId page : pages) {
          ASSERT_EQ(pool.contains(page), holder != kHost);
          ASSERT_TRUE(holder == kHost || pool.owner_of(page) == OwnerId(holder));
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::memory
