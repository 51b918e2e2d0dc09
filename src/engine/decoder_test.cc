#include "engine/decoder.h"

#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/decoder_rig.h"
#include "engine/test_host.h"

#include <sched.h>

namespace heddle::engine {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

/// Three layers, of which the middle one has a window of its own.
constexpr const char* kMixedWindows = "qwen2-window-types-new";

class DecoderTest : public testing::TestWithParam<spec::DType> {
 protected:
  TestHost host_{};
  LoadedModel model_ = host_.load(golden_directory() / kMixedWindows, GetParam());
  Golden golden_ = read_golden(kMixedWindows);

  std::vector<float> whole() {
    DecoderRig rig(host_, model_, all_layers(model_.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    rig.run(golden_.input_ids, 0, sequence, all_layers(model_.spec), hidden);
    rig.kv().clear(sequence);
    return hidden;
  }
};

TEST_P(DecoderTest, RunsAnySplitOfItsLayersAsOne) {
  const std::vector<float> expected = whole();
  for (std::int64_t cut = 0; cut <= model_.spec.layers; ++cut) {
    DecoderRig rig(host_, model_, all_layers(model_.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    rig.run(golden_.input_ids, 0, sequence, {.begin = 0, .end = cut}, hidden);
    rig.run(golden_.input_ids, 0, sequence, {.begin = cut, .end = model_.spec.layers}, hidden);
    EXPECT_TRUE(same_bits(hidden, expected)) << "cut at " << cut;
  }
}

// As on two hosts: each has the KV of its own layers only, laid out for them.
TEST_P(DecoderTest, StagesOfAPipelineGiveWhatOneDecoderGives) {
  const std::vector<float> expected = whole();
  for (std::int64_t cut = 1; cut < model_.spec.layers; ++cut) {
    const LayerRange first{.begin = 0, .end = cut};
    const LayerRange second{.begin = cut, .end = model_.spec.layers};
    DecoderRig head(host_, model_, first);
    DecoderRig tail(host_, model_, second);
    EXPECT_LT(head.kv().plan().groups[0].geometry.token_bytes() +
                  tail.kv().plan().groups[0].geometry.token_bytes(),
              static_cast<std::size_t>(2 * model_.spec.layers * 2 * model_.spec.kv_heads *
                                       model_.spec.head_dim * 4));
    SequenceKv at_head = head.kv().make_sequence();
    SequenceKv at_tail = tail.kv().make_sequence();
    std::vector<float> hidden;
    head.run(golden_.input_ids, 0, at_head, first, hidden);
    tail.run(golden_.input_ids, 0, at_tail, second, hidden);
    EXPECT_TRUE(same_bits(hidden, expected)) << "cut at " << cut;
  }
}

TEST_P(DecoderTest, GivesTheSameBitsInChunksOfAnySize) {
  const std::vector<float> expected = whole();
  const auto tokens = static_cast<std::int64_t>(golden_.input_ids.size());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    DecoderRig rig(host_, model_, all_layers(model_.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    for (std::int64_t done = 0; done < tokens;) {
      const auto n =
          static_cast<std::int64_t>(1 + rng.below(static_cast<std::uint64_t>(tokens - done)));
      std::vector<float> chunk;
      rig.run(std::span(golden_.input_ids)
                  .subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(n)),
              done,
              sequence,
              all_layers(model_.spec),
              chunk);
      hidden.insert(hidden.end(), chunk.begin(), chunk.end());
      done += n;
      rig.kv().slide(sequence, done);  // Windows let go of blocks on the way.
    }
    EXPECT_TRUE(same_bits(hidden, expected)) << "seed " << seed;
  }
}

TEST_P(DecoderTest, GivesTheSameBitsWithAnyNumberOfThreads) {
  const std::vector<float> expected = whole();
  const int core = ::sched_getcpu();  // Where this test may run; several threads can share it.
  for (const std::size_t threads : {2U, 3U}) {
    TestHost host(128,
                  std::size_t{64} << 10U,
                  device::CpuDeviceOptions{.cores = std::vector<int>(threads, core)});
    const LoadedModel model = host.load(golden_directory() / kMixedWindows, GetParam());
    DecoderRig rig(host, model, all_layers(model.spec));
    SequenceKv sequence = rig.kv().make_sequence();
    std::vector<float> hidden;
    rig.run(golden_.input_ids, 0, sequence, all_layers(model.spec), hidden);
    EXPECT_TRUE(same_bits(hidden, expected)) << threads << " threads";
  }
}

TEST_P(DecoderTest, NeedsNoMoreOfTheImageThanTheLayersItRuns) {
  const std::vector<float> expected = whole();
  DecoderRig rig(host_, model_, all_layers(model_.spec), ImageIs::kAbsent);
  SequenceKv sequence = rig.kv().make_sequence();
  std::vector<float> hidden;
  // Were it to wait for one byte more, this would not return.
  for (std::int64_t layer = 0; layer < model_.spec.layers; ++layer) {
    rig.gate().advance(model_.layout.stage_end[static_cast<std::size_t>(layer) + 1]);
    rig.run(golden_.input_ids, 0, sequence, {.begin = layer, .end = layer + 1}, hidden);
  }
  EXPECT_TRUE(same_bits(hidden, expected));
}

TEST_P(DecoderTest, WrongPositionsShow) {
  const std::vector<float> expected = whole();
  DecoderRig rig(host_, model_, all_layers(model_.spec));
  SequenceKv sequence = rig.kv().make_sequence();
  const std::span ids(golden_.input_ids);
  std::vector<float> prompt;
  rig.run(ids.first(40), 0, sequence, all_layers(model_.spec), prompt);
  std::vector<float> shifted;
  rig.run(ids.subspan(40), 40, sequence, all_layers(model_.spec), shifted, /*rope_shift=*/1);
  EXPECT_FALSE(same_bits(
      shifted, {expected.end() - static_cast<std::ptrdiff_t>(shifted.size()), expected.end()}));
}

INSTANTIATE_TEST_SUITE_P(DTypes,
                         DecoderTest,
                         testing::Values(spec::DType::kF32, spec::DType::kBf16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(DecoderCreate, RefusesAnImageOfAnotherModel) {
  TestHost host;
  const LoadedModel model = host.load(golden_directory() / kMixedWindows, spec::DType::kF32);
  const ImageGate gate;
  const auto create = [&](const spec::ModelSpec& spec, const store::ImageLayout& layout) {
    return Decoder::create(spec,
                           layout,
                           model.window.base(),
                           gate.watermark(),
                           plan_kv(spec, all_layers(spec), spec::DType::kF32, 65536).value(),
                           nullptr);
  };
  ASSERT_TRUE(create(model.spec, model.layout));
  spec::ModelSpec other = model.spec;
  other.intermediate += 8;
  auto decoder = create(other, model.layout);
  ASSERT_FALSE(decoder);
  EXPECT_EQ(decoder.error().code, Code::kCorrupt);
  other = model.spec;
  other.head_dim = 514;
  decoder = create(other, model.layout);
  ASSERT_FALSE(decoder);
  EXPECT_EQ(decoder.error().message, "run a model with head_dim 514: attention takes at most 512");
  store::ImageLayout shorter = model.layout;
  shorter.stage_end.pop_back();
  decoder = create(model.spec, shorter);
  ASSERT_FALSE(decoder);
  EXPECT_NE(decoder.error().message.find("stages"), std::string::npos);
}

}  // namespace
}  // namespace heddle::engine
