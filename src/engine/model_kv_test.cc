#include "engine/model_kv.h"

#include <set>

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
            plan_kv(model(), all_layers(model()), spec::DType::kF32, 4096).value()};
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
  EXPECT_EQ(kv.pages_held(), 0);
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
    EXPECT_LE(kv.pages_held(), kv.pages_for(tokens, step)) << tokens;
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

}  // namespace
}  // namespace heddle::engine
