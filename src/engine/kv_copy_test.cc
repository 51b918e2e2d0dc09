#include "engine/kv_copy.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr std::size_t kCopyPage = 4096;

/// A few layers, one with a window, and one with wider heads.
spec::ModelSpec few_layers() {
  spec::ModelSpec model;
  model.layers = 5;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.window = {0, 40, 0, 0, 0};
  model.layer_rope.assign(5, spec::LayerRope::kLocal);
  model.layer_rope[2] = spec::LayerRope::kModels;
  model.global_kv_heads = 2;
  model.global_head_dim = 24;
  return model;
}

class KvCopy : public testing::Test {
 protected:
  ModelKv make(LayerRange range) {
    return {host_.pool(),
            kKvLease,
            plan_kv(few_layers(), range, spec::DType::kF32, kCopyPage).value(),
            host_.cached()};
  }
  /// What the positions of a layer hold, told apart by all that tells bytes apart.
  static std::string content(const ModelKv& kv, std::int64_t layer, KvPositions positions) {
    std::string bytes;
    const auto row = kv.plan().position_bytes(layer) / 4;
    for (std::size_t head = 0; head < 4; ++head) {  // Keys of two, values of two.
      for (std::int64_t at = positions.begin; at < positions.end; ++at) {
        const auto value =
            static_cast<char>(layer * 71 + static_cast<std::int64_t>(head) * 13 + at);
        bytes.append(row, value);
      }
    }
    return bytes;
  }
  void fill(ModelKv& kv, SequenceKv& sequence, std::int64_t layer, KvPositions positions) {
    ASSERT_TRUE(copy_in(
        host_.device(), *stream_, kv, sequence, layer, positions, content(kv, layer, positions)));
  }
  std::int64_t read(const ModelKv& kv,
                    const SequenceKv& sequence,
                    std::int64_t layer,
                    KvPositions positions,
                    std::string& bytes) {
    return copy_out(host_.device(), *stream_, kv, sequence, layer, positions, bytes).value();
  }

  TestHost host_{64, kCopyPage};
  std::unique_ptr<device::Stream> stream_ = host_.device().create_stream().value();
};

TEST_F(KvCopy, PositionsComeBackWhereverBlocksEnd) {
  ModelKv part = make({.begin = 0, .end = 1});
  ModelKv whole = make(all_layers(few_layers()));
  ASSERT_NE(part.plan().groups[0].geometry.block_tokens,
            whole.plan().groups[whole.plan().place(0).group].geometry.block_tokens);
  for (ModelKv* kv : {&part, &whole}) {
    SequenceKv sequence = kv->make_sequence();
    ASSERT_TRUE(kv->grow(sequence, 100));
    for (const KvPositions& piece : {KvPositions{0, 7}, {7, 45}, {45, 46}, {46, 100}}) {
      fill(*kv, sequence, 0, piece);
    }
    for (const KvPositions& wanted : {KvPositions{0, 100}, {3, 4}, {20, 77}, {50, 50}}) {
      std::string bytes = "before";
      EXPECT_EQ(read(*kv, sequence, 0, wanted, bytes), wanted.begin);
      EXPECT_EQ(bytes, "before" + content(*kv, 0, wanted));
    }
    kv->clear(sequence);
  }
}

TEST_F(KvCopy, LayersDoNotTouchEachOther) {
  ModelKv whole = make(all_layers(few_layers()));
  SequenceKv sequence = whole.make_sequence();
  ASSERT_TRUE(whole.grow(sequence, 60));
  for (const std::int64_t layer : {0, 1, 2}) {
    fill(whole, sequence, layer, {0, 60});
  }
  for (const std::int64_t layer : {0, 1, 2}) {
    std::string bytes;
    (void)read(whole, sequence, layer, {0, 60}, bytes);
    EXPECT_EQ(bytes, content(whole, layer, {0, 60})) << layer;
  }
  whole.clear(sequence);
}

TEST_F(KvCopy, WhatHasSlidAwayIsLeftOut) {
  ModelKv whole = make(all_layers(few_layers()));
  SequenceKv sequence = whole.make_sequence();
  ASSERT_TRUE(whole.grow(sequence, 100));
  fill(whole, sequence, 1, {0, 100});
  whole.slide(sequence, 100);
  const std::int64_t block = whole.plan().groups[whole.plan().place(1).group].geometry.block_tokens;
  const std::int64_t live = 61 / block * block;
  std::string bytes;
  EXPECT_EQ(read(whole, sequence, 1, {10, 100}, bytes), live);
  EXPECT_EQ(bytes, content(whole, 1, {live, 100}));
  bytes.clear();
  EXPECT_EQ(read(whole, sequence, 1, {10, 20}, bytes), 20) << "nothing of it";
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(read(whole, sequence, 0, {10, 20}, bytes), 10) << "a layer without a window";
  whole.clear(sequence);
}

TEST_F(KvCopy, StatesAreOneRunOfBytesWhateverTheirBlocks) {
  spec::ModelSpec model = few_layers();
  model.layers = 4;
  model.window.assign(4, 0);
  model.layer_rope.assign(4, spec::LayerRope::kLocal);
  model.max_position = 1000;
  model.linear = {.key_heads = 3, .value_heads = 3, .key_dim = 8, .value_dim = 16, .kernel = 4};
  model.mixer = {spec::Mixer::kDeltaRule,
                 spec::Mixer::kAttention,
                 spec::Mixer::kDeltaRule,
                 spec::Mixer::kAttention};
  std::string bytes;
  for (const std::size_t page : {kCopyPage, 2 * kCopyPage}) {
    TestHost host(64, page);
    ModelKv kv(host.pool(),
               kKvLease,
               plan_kv(model, all_layers(model), spec::DType::kF32, page).value(),
               host.cached());
    SequenceKv sequence = kv.make_sequence();
    ASSERT_TRUE(kv.grow(sequence, 1));
    std::vector<memory::KvBlockRef> blocks;
    for (std::size_t g = kv.plan().kv_groups(); g < kv.plan().groups.size(); ++g) {
      blocks.push_back(sequence.groups()[g].blocks.front());
    }
    if (bytes.empty()) {  // On the first pages.
      for (std::int64_t i = 0; i < state_size(kv.plan()); ++i) {
        bytes.push_back(static_cast<char>(i * 31 % 127));
      }
    }
    ASSERT_EQ(std::ssize(bytes), state_size(kv.plan())) << "a state has one size";
    const auto stream = host.device().create_stream().value();
    ASSERT_TRUE(copy_states_in(host.device(), *stream, kv, blocks, bytes));
    std::string back;
    for (std::int64_t at = 0; at < std::ssize(bytes); at += 1000) {
      const std::int64_t end = std::min<std::int64_t>(at + 1000, std::ssize(bytes));
      ASSERT_TRUE(copy_states_out(host.device(), *stream, kv, blocks, at, end, back));
    }
    EXPECT_EQ(back, bytes);
    kv.clear(sequence);
  }
}

}  // namespace
}  // namespace heddle::engine
