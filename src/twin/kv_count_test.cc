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

std::int64_t held(const KvCount& kv) {
  return kv.counted().kv.at(0).pages;
}

/// Blocks of 4 tokens, 2 to a page.
KvCount pool(bool keep_prefixes) {
  KvCount kv(pages(4), keep_prefixes);
  kv.add_model(kModel, {{.tokens_per_block = 4, .blocks_per_page = 2}});
  return kv;
}

TEST(KvCount, SequencesOfAModelSharePages) {
  KvCount kv = pool(false);
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(1), 4));
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(2), 3));
  EXPECT_EQ(held(kv), 1);
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(2), 5));
  EXPECT_EQ(held(kv), 2);
  EXPECT_EQ(kv.free(), 2);
}

TEST(KvCount, WhatDoesNotFitChangesNothing) {
  KvCount kv = pool(false);
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(1), 24));
  EXPECT_FALSE(kv.resize(kModel, core::SequenceId(2), 9));
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(2), 8));
  EXPECT_FALSE(kv.resize(kModel, core::SequenceId(1), 25));
  EXPECT_EQ(held(kv), 4);
  kv.remove(kModel, core::SequenceId(1));
  EXPECT_EQ(held(kv), 1);
  EXPECT_EQ(kv.free(), 3);
}

TEST(KvCount, PrefixesStayUntilTheirPagesAreNeeded) {
  KvCount kv = pool(true);
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(1), 16));
  kv.remove(kModel, core::SequenceId(1));
  EXPECT_EQ(kv.counted().cached_pages, 2);
  EXPECT_EQ(kv.free(), 2);
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(2), 24));
  EXPECT_EQ(kv.counted().cached_pages, 1);
  kv.trim(0);
  EXPECT_EQ(kv.counted().cached_pages, 0);
  EXPECT_EQ(kv.free(), 1);
}

TEST(KvCount, TellsOnceThatItChanged) {
  KvCount kv = pool(false);
  EXPECT_FALSE(kv.changed());
  EXPECT_TRUE(kv.resize(kModel, core::SequenceId(1), 1));
  EXPECT_TRUE(kv.changed());
  EXPECT_FALSE(kv.changed());
}

}  // namespace
}  // namespace heddle::twin
