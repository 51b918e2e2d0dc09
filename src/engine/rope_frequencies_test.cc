#include "engine/rope_frequencies.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

spec::ModelSpec model_of(spec::RopeScaling rope, std::int64_t head_dim = 8) {
  spec::ModelSpec model;
  model.head_dim = head_dim;
  model.rope_theta = 10000.0;
  model.max_position = 4096;
  model.rope = rope;
  return model;
}

TEST(RopeFrequencies, DefaultIsAPowerOfTheta) {
  const auto f = rope_frequencies(model_of({}));
  ASSERT_EQ(f.radians.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(f.radians[i], std::pow(10.0, -static_cast<double>(i)), 1e-15);
  }
  EXPECT_EQ(f.scale, 1.0);
}

TEST(RopeFrequencies, LinearStretchesAll) {
  const auto f = rope_frequencies(model_of({.kind = spec::RopeKind::kLinear, .factor = 4.0}));
  EXPECT_NEAR(f.radians[0], 0.25, 1e-15);
  EXPECT_NEAR(f.radians[3], 0.00025, 1e-15);
}

TEST(RopeFrequencies, Llama3StretchesLongWavesOnly) {
  const spec::RopeScaling rope{.kind = spec::RopeKind::kLlama3,
                               .factor = 8.0,
                               .low_freq_factor = 1.0,
                               .high_freq_factor = 4.0,
                               .original_max_position = 1024};
  const auto f = rope_frequencies(model_of(rope));
  EXPECT_NEAR(f.radians[0], 1.0, 1e-15) << "1024 positions are 163 turns";
  EXPECT_NEAR(f.radians[3], 1e-3 / 8.0, 1e-15) << "and here 0.16 of one";
  // 1024 * 0.01 / 2 pi = 1.63 turns: between, (1.63 - 1) / 3 of it is kept.
  const double keep = (10.24 / (2.0 * std::numbers::pi) - 1.0) / 3.0;
  EXPECT_NEAR(f.radians[2], keep * 0.01 + (1.0 - keep) * 0.01 / 8.0, 1e-15);
}

TEST(RopeFrequencies, LongRopeDividesEachByItsFactor) {
  spec::RopeScaling rope{.kind = spec::RopeKind::kLongRope,
                         .factor = 16.0,
                         .original_max_position = 256,
                         .factors = {1.0, 2.0, 4.0, 8.0}};
  const auto f = rope_frequencies(model_of(rope));
  EXPECT_NEAR(f.radians[1], 0.1 / 2.0, 1e-15);
  EXPECT_NEAR(f.radians[3], 1e-3 / 8.0, 1e-15);
  EXPECT_NEAR(f.scale, std::sqrt(1.5), 1e-15) << "ln 16 is half of ln 256";
  rope.attention_factor = 1.25;
  EXPECT_EQ(rope_frequencies(model_of(rope)).scale, 1.25);
  rope.attention_factor = 0.0;
  rope.factor = 1.0;
  EXPECT_EQ(rope_frequencies(model_of(rope)).scale, 1.0);
}

TEST(RopeFrequencies, YarnScalesRotations) {
  spec::RopeScaling rope{
      .kind = spec::RopeKind::kYarn, .factor = 4.0, .original_max_position = 1024};
  auto f = rope_frequencies(model_of(rope, 64));
  EXPECT_NEAR(f.scale, 0.1 * std::log(4.0) + 1.0, 1e-15);
  EXPECT_NEAR(f.radians[0], 1.0, 1e-15) << "fast dimensions stay";
  EXPECT_NEAR(f.radians[31] * 4.0, std::pow(10000.0, -62.0 / 64.0), 1e-12) << "slow ones stretch";
  rope.attention_factor = 1.5;
  EXPECT_EQ(rope_frequencies(model_of(rope, 64)).scale, 1.5);
  rope = {.kind = spec::RopeKind::kYarn,
          .factor = 4.0,
          .mscale = 1.0,
          .mscale_all_dim = 0.5,
          .original_max_position = 1024};
  EXPECT_NEAR(rope_frequencies(model_of(rope, 64)).scale,
              (0.1 * std::log(4.0) + 1.0) / (0.05 * std::log(4.0) + 1.0),
              1e-15);
}

TEST(RopeFrequencies, ProportionalTurnsTheFirstPairsAtTheirSpeeds) {
  spec::ModelSpec model = model_of({.kind = spec::RopeKind::kProportional, .factor = 2.0}, 16);
  model.rope.share = 0.3;  // 2.4 of 8 pairs.
  const auto of_local = rope_frequencies(model, spec::LayerRope::kLocal);
  const auto all = rope_frequencies(model).radians;
  ASSERT_EQ(all.size(), 8U);
  EXPECT_NEAR(all[0], 1.0 / 2, 1e-15);
  EXPECT_NEAR(all[1], std::pow(10000.0, -2.0 / 16.0) / 2, 1e-15);
  EXPECT_TRUE(std::all_of(all.begin() + 2, all.end(), [](double speed) { return speed == 0; }));
  EXPECT_EQ(of_local.radians.back(), std::pow(10000.0, -14.0 / 16.0)) << "has none of it";
  model.global_head_dim = 32;
  EXPECT_EQ(rope_frequencies(model).radians.size(), 16U);
  EXPECT_EQ(rope_frequencies(model, spec::LayerRope::kLocal).radians, of_local.radians);
}

TEST(RopeCosSin, IsExactFarOut) {
  const RopeFrequencies f{.radians = {1.0, 1e-3}, .scale = 2.0};
  std::vector<float> out(4);
  rope_cos_sin(f, 1'000'003, out);
  EXPECT_EQ(out[0], static_cast<float>(2.0 * std::cos(1'000'003.0)));
  EXPECT_EQ(out[1], static_cast<float>(2.0 * std::cos(1000.003)));
  EXPECT_EQ(out[2], static_cast<float>(2.0 * std::sin(1'000'003.0)));
  EXPECT_EQ(out[3], static_cast<float>(2.0 * std::sin(1000.003)));
}

TEST(RopeTable, HasTheBitsOfEachPosition) {
  const RopeFrequencies frequencies = rope_frequencies(model_of({}));
  RopeTable table(frequencies);
  for (const std::int64_t position : {5L,
                                      63L,
                                      64L,
                                      5L,
                                      1000L,
                                      0L,
                                      RopeTable::kKept - 1,
                                      RopeTable::kKept,
                                      RopeTable::kKept + 77}) {
    std::vector<float> expected(8);
    rope_cos_sin(frequencies, position, expected);
    const std::span<const float> row = table.row(position);
    EXPECT_EQ(std::vector<float>(row.begin(), row.end()), expected) << position;
  }
}

}  // namespace
}  // namespace heddle::engine
