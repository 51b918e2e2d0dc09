#include "engine/model_kv.h"

#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr std::int64_t kWindow = 40;

/// Two layers, one with a window.
spec::ModelSpec model() {
  spec::ModelSpec model;
  model.layers = 2;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.window = {0, kWindow};
  return model;
}

class ModelKvTest : public testing::Test {
 protected:
  explicit ModelKvTest(std::uint64_t pages = 32) : host_(pages, 4096) {}

  ModelKv make() {
    return {host_.pool(),
            kKvLease,
            plan_kv(model(), all_layers(model()), spec::DType::kF32, 4096).value(),
            host_.cached()};
  }

  static std::int64_t live(const SequenceKv& sequence, std::size_t group) {
    const SequenceKv::Group& own = sequence.groups()[group];
    return static_cast<std::int64_t>(own.blocks.size() - own.first_live);
  }

  TestHost host_;
};

TEST_F(ModelKvTest, GrowsByWholeBlocksAndShrinksBack) {
  ModelKv kv = make();
  const std::int64_t block = kv.plan().groups[0].geometry.block_tokens;
  SequenceKv sequence = kv.make_sequence();
  ASSERT_TRUE(kv.grow(sequence, block + 1));
  EXPECT_EQ(live(sequence, 0), 2);
  EXPECT_EQ(live(sequence, 1), 2);
  ASSERT_TRUE(kv.grow(sequence, block + 1));
  EXPECT_EQ(live(sequence, 0), 2) << "it has what it needs";
  kv.shrink(sequence, block);
  EXPECT_EQ(live(sequence, 0), 1);
  kv.clear(sequence);
  EXPECT_EQ(kv.pages_used(), 0);
  EXPECT_EQ(host_.pool().free_count(), 32);
}

TEST_F(ModelKvTest, SlidesOutOfTheWindowOnly) {
  ModelKv kv = make();
  const std::int64_t block = kv.plan().groups[1].geometry.block_tokens;
  SequenceKv sequence = kv.make_sequence();
  ASSERT_TRUE(kv.grow(sequence, 200));
  const std::int64_t all = live(sequence, 0);
  kv.slide(sequence, 200);
  EXPECT_EQ(live(sequence, 0), all) << "a layer without a window keeps everything";
  // The next token, at 200, attends to 161 .. 200.
  EXPECT_EQ(static_cast<std::int64_t>(sequence.groups()[1].first_live), 161 / block);
  kv.slide(sequence, 200);
  EXPECT_EQ(static_cast<std::int64_t>(sequence.groups()[1].first_live), 161 / block);
  kv.clear(sequence);
  EXPECT_EQ(host_.pool().free_count(), 32);
}

TEST_F(ModelKvTest, WindowedLayersNeedNoMoreForLongerSequences) {
  ModelKv kv = make();
  const std::int64_t step = 8;
  const std::int64_t growth = kv.pages_for(10'000, step) - kv.pages_for(5'000, step);
  const auto& full = kv.plan().groups[0].geometry;
  EXPECT_EQ(growth, full.pages_for(10'000) - full.pages_for(5'000));
  // And what it says is enough, however the steps fall.
  SequenceKv sequence = kv.make_sequence();
  for (std::int64_t tokens = step; tokens < 400; tokens += step) {
    ASSERT_TRUE(kv.grow(sequence, tokens));
    EXPECT_LE(kv.pages_used(), kv.pages_for(tokens, step)) << tokens;
    kv.slide(sequence, tokens);
  }
  kv.clear(sequence);
}

TEST_F(ModelKvTest, FailsWholeAndKeepsWhatItHad) {
  ModelKv kv = make();
  SequenceKv sequence = kv.make_sequence();
  ASSERT_TRUE(kv.grow(sequence, 20));
  const std::int64_t before = host_.pool().free_count();
  const auto grown = kv.grow(sequence, 100'000);
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, Code::kResourceExhausted);
  EXPECT_EQ(host_.pool().free_count(), before);
  kv.clear(sequence);
}

// Sequences come, grow, slide, shrink and go; no block is ever in two hands, and all come back.
TEST_F(ModelKvTest, HandsEachBlockToOneSequence) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    ModelKv kv = make();
    struct Held {
      SequenceKv blocks{};
      std::int64_t tokens = 0;
    };
    std::vector<Held> sequences(5);
    for (Held& held : sequences) {
      held.blocks = kv.make_sequence();
    }
    for (int i = 0; i < 200; ++i) {
      Held& held = sequences[rng.below(sequences.size())];
      switch (rng.below(4)) {
        case 0:
        case 1: {
          const auto more = static_cast<std::int64_t>(rng.below(60));
          if (kv.grow(held.blocks, held.tokens + more)) {
            held.tokens += more;
            kv.slide(held.blocks, held.tokens);
          }
          break;
        }
        case 2:
          (void)kv.grow(held.blocks, held.tokens + 30);  // Whether or not it fits.
          kv.shrink(held.blocks, held.tokens);
          break;
        default:
          kv.clear(held.blocks);
          held.tokens = 0;
      }
      std::set<std::int32_t> numbers;
      std::size_t count = 0;
      for (const Held& other : sequences) {
        for (std::size_t g = 0; g < 2; ++g) {
          const SequenceKv::Group& group = other.blocks.groups()[g];
          for (std::size_t b = group.first_live; b < group.blocks.size(); ++b) {
            const auto page = static_cast<std::int32_t>(group.blocks[b].page.value());
            numbers.insert(page * 64 + static_cast<std::int32_t>(group.blocks[b].slot));
            ++count;
          }
        }
      }
      ASSERT_EQ(numbers.size(), count) << "seed " << seed;
      host_.pool().check_invariants();
    }
    for (Held& held : sequences) {
      kv.clear(held.blocks);
    }
    ASSERT_EQ(host_.pool().free_count(), 32) << "seed " << seed;
  }
}

TEST_F(ModelKvTest, NumbersBlocksByAddress) {
  ModelKv kv = make();
  const auto& geometry = kv.plan().groups[0].geometry;
  const memory::KvBlockRef block{.page = device::PageId{5}, .slot = 1};
  const auto* first = host_.device().page_address(device::PageId{0});
  EXPECT_EQ(first + static_cast<std::size_t>(kv.block_number(0, block)) * geometry.block_bytes,
            host_.device().page_address(block.page) + block.slot * geometry.block_bytes);
}

std::vector<TokenId> count_to(std::int64_t size) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(size));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

class PrefixTest : public ModelKvTest {
 protected:
  /// Grows a sequence as the engine does, in steps, and lets go of it: its prefix is cached.
  void compute(ModelKv& kv, const std::vector<TokenId>& tokens, std::int64_t step = 7) {
    SequenceKv sequence = kv.make_sequence();
    for (std::int64_t at = 0; at < std::ssize(tokens);) {
      at = std::min(at + step, std::ssize(tokens));
      ASSERT_TRUE(kv.grow(sequence, at));
      kv.keep_prefix(sequence, keys_, std::span(tokens).first(static_cast<std::size_t>(at)));
      kv.slide(sequence, at);
    }
    kv.clear(sequence);
  }

  PrefixKeys keys_{{1, 2}, ""};
};

TEST_F(PrefixTest, TheLongestCachedPrefixIsTaken) {
  ModelKv kv = make();
  const std::int64_t block = kv.plan().groups[0].geometry.block_tokens;
  ASSERT_EQ(kv.plan().groups[1].geometry.block_tokens, block);
  const auto tokens = count_to(6 * block + 3);
  compute(kv, tokens);
  EXPECT_EQ(kv.pages_used(), 0);
  EXPECT_GT(host_.cached().count(), 0);

  SequenceKv all = kv.make_sequence();
  EXPECT_EQ(kv.take_prefix(all, keys_, tokens), 6 * block);
  EXPECT_EQ(live(all, 0), 6);
  EXPECT_EQ(all.groups()[1].blocks.size(), 6U);
  EXPECT_EQ(all.groups()[1].first_live,
            static_cast<std::size_t>((6 * block - kWindow + 1) / block));

  auto parting = tokens;
  parting[static_cast<std::size_t>(4 * block + 1)] = 1000;
  SequenceKv part = kv.make_sequence();
  EXPECT_EQ(kv.take_prefix(part, keys_, parting), 4 * block);
  EXPECT_EQ(part.groups()[0].blocks[3], all.groups()[0].blocks[3]) << "shared";
  ASSERT_TRUE(kv.grow(part, 5 * block));
  EXPECT_NE(part.groups()[0].blocks[4], all.groups()[0].blocks[4]);

  SequenceKv stranger = kv.make_sequence();
  EXPECT_EQ(kv.take_prefix(stranger, PrefixKeys({1, 2}, "salt"), tokens), 0);
  kv.clear(all);
  kv.clear(part);
  EXPECT_EQ(kv.pages_used(), 0);
}

// A group with a window needs the blocks within it and no others: without those that have left it
// the whole prefix is as good as before, and a shorter one is not.
TEST_F(PrefixTest, OfAWindowItsOwnBlocksAreEnough) {
  ModelKv kv = make();
  const std::int64_t block = kv.plan().groups[0].geometry.block_tokens;
  const auto tokens = count_to(12 * block);
  SequenceKv sequence = kv.make_sequence();
  ASSERT_TRUE(kv.grow(sequence, 12 * block));
  kv.keep_prefix(sequence, keys_, tokens);
  kv.slide(sequence, 12 * block);
  auto parting = tokens;
  parting[static_cast<std::size_t>(6 * block)] = 1000;
  SequenceKv shorter = kv.make_sequence();
  EXPECT_EQ(kv.take_prefix(shorter, keys_, parting), 6 * block);
  kv.clear(shorter);

  ASSERT_GT(host_.cached().count(), 0);
  while (host_.cached().drop_oldest(ledger::DropReason::kBound)) {
  }
  EXPECT_EQ(kv.take_prefix(shorter, keys_, parting), 0);
  SequenceKv next = kv.make_sequence();
  EXPECT_EQ(kv.take_prefix(next, keys_, tokens), 12 * block);
  EXPECT_EQ(next.groups()[1].first_live, sequence.groups()[1].first_live);
  kv.clear(next);
  kv.clear(sequence);
}

TEST_F(PrefixTest, RunningSequencesShareAndTheLastOneLeavesThePageCached) {
  ModelKv kv = make();
  const std::int64_t block = kv.plan().groups[0].geometry.block_tokens;
  const auto tokens = count_to(2 * block);
  SequenceKv first = kv.make_sequence();
  ASSERT_TRUE(kv.grow(first, 2 * block));
  kv.keep_prefix(first, keys_, tokens);
  SequenceKv second = kv.make_sequence();
  EXPECT_EQ(kv.take_prefix(second, keys_, tokens), 2 * block);
  const std::int64_t pages = kv.pages_used();
  kv.clear(first);
  EXPECT_EQ(kv.pages_used(), pages);
  kv.clear(second);
  EXPECT_EQ(kv.pages_used(), 0);
  EXPECT_EQ(host_.pool().free_count() + host_.cached().count(), 32);
}

TEST_F(PrefixTest, ASequenceThatComputedTheSameEndsAlone) {
  ModelKv kv = make();
  const auto tokens = count_to(64);
  SequenceKv first = kv.make_sequence();
  SequenceKv second = kv.make_sequence();
  for (SequenceKv* sequence : {&first, &second}) {
    ASSERT_TRUE(kv.grow(*sequence, 64));
    kv.keep_prefix(*sequence, keys_, tokens);
  }
  const std::int64_t both = kv.pages_used();
  kv.clear(second);
  EXPECT_EQ(host_.cached().count(), 0) << "what the first has is found, so nothing is kept twice";
  EXPECT_LT(kv.pages_used(), both);
  kv.clear(first);
}

TEST_F(PrefixTest, WhatIsCachedNeverStandsInTheWay) {
  ModelKv kv = make();
  std::vector<TokenId> tokens = count_to(60);
  for (int i = 0; i < 40; ++i) {
    tokens[0] = 1000 + i;
    compute(kv, tokens);
  }
  EXPECT_EQ(host_.pool().free_count() + host_.cached().count(), 32);
  EXPECT_GE(host_.cached().count(), 28) << "all but those of blocks that were not full";
  SequenceKv sequence = kv.make_sequence();
  std::int64_t most = 0;
  while (kv.grow(sequence, most + 1)) {
    ++most;
  }
  EXPECT_EQ(kv.pages_used(), 32);
  EXPECT_EQ(host_.cached().count(), 0);
  kv.clear(sequence);
  EXPECT_EQ(host_.pool().free_count(), 32);
}

}  // namespace
}  // namespace heddle::engine
