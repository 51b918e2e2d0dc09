#include "twin/kv_count.h"

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

constexpr ModelId kModel{1};

std::vector<PageId> pages(std::uint64_t count) {
  std::vector<PageId> all;
  for (std::uint64_t i = 0; i < count; ++i) {
    all.emplace_back(i);
  }
  return all;
}

constexpr core::SequenceId kFirst{1};
constexpr core::SequenceId kSecond{2};

/// Four pages, each of two blocks of 4 tokens.
struct Pool {
  explicit Pool(bool keep_prefixes, std::int64_t window = 0) : kv(4, pages(4), keep_prefixes) {
    kv.add_model(kModel, {{.tokens_per_block = 4, .blocks_per_page = 2, .window = window}});
  }
  /// So many tokens of the sequence are computed.
  [[nodiscard]] bool run(core::SequenceId sequence, std::int64_t tokens) {
    const bool grown = kv.grow(kModel, sequence, tokens);
    if (grown) {
      kv.compute(kModel, sequence, tokens);
    }
    return grown;
  }
  [[nodiscard]] std::int64_t held() const { return kv.counted().kv.at(0).pages; }

  KvCount kv;
};

TEST(KvCount, SequencesOfAModelSharePages) {
  Pool pool(false);
  EXPECT_TRUE(pool.run(kFirst, 4));
  EXPECT_TRUE(pool.run(kSecond, 3));
  EXPECT_EQ(pool.held(), 1);
  EXPECT_TRUE(pool.run(kSecond, 5));
  EXPECT_EQ(pool.held(), 2);
  EXPECT_EQ(pool.kv.free(), 2);
}

TEST(KvCount, APageComesFreeWithItsLastBlock) {
  Pool pool(false);
  EXPECT_TRUE(pool.run(kFirst, 4));
  EXPECT_TRUE(pool.run(kSecond, 4));
  EXPECT_TRUE(pool.run(kFirst, 8));
  EXPECT_TRUE(pool.run(kSecond, 8));
  pool.kv.remove(kModel, kFirst);
  EXPECT_EQ(pool.held(), 2) << "the second has a block on either";
  pool.kv.remove(kModel, kSecond);
  EXPECT_EQ(pool.kv.free(), 4);
}

TEST(KvCount, WhatDoesNotFitChangesNothing) {
  Pool pool(false);
  EXPECT_TRUE(pool.run(kFirst, 24));
  EXPECT_FALSE(pool.run(kSecond, 9));
  EXPECT_EQ(pool.held(), 3);
  EXPECT_TRUE(pool.run(kSecond, 8));
  EXPECT_FALSE(pool.run(kFirst, 25));
  EXPECT_EQ(pool.held(), 4);
  pool.kv.remove(kModel, kFirst);
  EXPECT_EQ(pool.held(), 1);
  EXPECT_EQ(pool.kv.free(), 3);
}

TEST(KvCount, WhatFallsOutOfTheWindowIsFree) {
  Pool pool(false, 4);
  EXPECT_TRUE(pool.run(kFirst, 32));
  EXPECT_EQ(pool.held(), 1) << "tokens 29 to 32";
  pool.kv.remove(kModel, kFirst);
  EXPECT_EQ(pool.kv.free(), 4);
}

TEST(KvCount, PrefixesStayUntilTheirPagesAreNeeded) {
  Pool pool(true);
  EXPECT_TRUE(pool.run(kFirst, 16));
  pool.kv.remove(kModel, kFirst);
  EXPECT_EQ(pool.kv.counted().cached_pages, 2);
  EXPECT_EQ(pool.kv.free(), 2);
  EXPECT_TRUE(pool.run(kSecond, 24));
  EXPECT_EQ(pool.kv.counted().cached_pages, 1);
  pool.kv.trim(0);
  EXPECT_EQ(pool.kv.counted().cached_pages, 0);
  EXPECT_EQ(pool.kv.free(), 1);
}

TEST(KvCount, TellsOnceThatItChanged) {
  Pool pool(false);
  EXPECT_FALSE(pool.kv.changed());
  EXPECT_TRUE(pool.run(kFirst, 1));
  EXPECT_TRUE(pool.kv.changed());
  EXPECT_FALSE(pool.kv.changed());
}

}  // namespace
}  // namespace heddle::twin
