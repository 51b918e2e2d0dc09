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
      kv.compute(kModel, sequence, tokens, {});
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

TEST(KvCount, APrefixThatStaysIsFoundByWhoHasTheSameTokens) {
  Pool pool(true);
  PrefixMarks marks(kModel, "", std::vector<TokenId>(10));
  EXPECT_TRUE(pool.kv.grow(kModel, kFirst, 10));
  pool.kv.compute(kModel, kFirst, 10, marks);
  EXPECT_EQ(pool.kv.find_prefix(kModel, kSecond, 7, marks), 4);
  EXPECT_EQ(pool.held(), 2) << "they share a block";
  pool.kv.remove(kModel, kFirst);
  pool.kv.remove(kModel, kSecond);
  EXPECT_EQ(pool.kv.find_prefix(kModel, kSecond, 8, marks), 8);
  pool.kv.remove(kModel, kSecond);
  const PrefixMarks others(kModel, "another", std::vector<TokenId>(10));
  EXPECT_EQ(pool.kv.find_prefix(kModel, kSecond, 10, others), 0);
  EXPECT_EQ(pool.kv.find_prefix(kModel, kSecond, 10, {}), 0);
}

TEST(KvCount, WhatWasNotComputedAfterAllIsGivenBack) {
  Pool pool(false);
  EXPECT_TRUE(pool.run(kFirst, 5));
  EXPECT_TRUE(pool.kv.grow(kModel, kFirst, 24));
  EXPECT_EQ(pool.held(), 3);
  pool.kv.shrink(kModel, kFirst);
  EXPECT_EQ(pool.held(), 1);
  EXPECT_TRUE(pool.run(kFirst, 9));
}

TEST(KvCount, WritesToPagesOfItsLifeWhatItReads) {
  Pool pool(true);
  Contents contents(4, 1);
  const Life life{.epoch = WorkerEpoch(3)};
  pool.kv.watch(contents, life);
  const PrefixMarks marks(kModel, "", std::vector<TokenId>(6));
  EXPECT_TRUE(pool.kv.grow(kModel, kFirst, 6));
  pool.kv.compute(kModel, kFirst, 5, marks);
  pool.kv.compute(kModel, kFirst, 6, marks);
  contents.use_kv(life, {.page = PageId(0), .slot = 1}, marks.at(6));
  contents.write_kv(life, {.page = PageId(0), .slot = 0}, 1);
  EXPECT_DEATH(pool.kv.compute(kModel, kFirst, 6, marks), "mark");
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
