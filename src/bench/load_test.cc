#include "bench/load.h"

#include <array>

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

const DrawnLoad kLoad{
    .weights = {3, 1}, .input = {10, 20}, .output = {5, 5}, .rate = 50, .seed = 7};

TEST(DrawnLoad, HasTheRateTheMixAndTheLengthsThatWereAskedFor) {
  const auto source = draw_load(kLoad);
  constexpr int kShots = 20'000;
  std::array<int, 2> models{};
  Shot shot;
  Duration last{};
  double inputs = 0;
  for (int i = 0; i < kShots; ++i) {
    ASSERT_TRUE(source->next(shot));
    ASSERT_GE(shot.at, last);
    ASSERT_TRUE(shot.input_tokens >= 10 && shot.input_tokens <= 20);
    ASSERT_EQ(shot.output_tokens, 5);
    last = shot.at;
    inputs += static_cast<double>(shot.input_tokens);
    ++models.at(shot.model);
  }
  EXPECT_NEAR(kShots / (to_seconds(last)), 50, 1.5);
  EXPECT_NEAR(models[0] / static_cast<double>(kShots), 0.75, 0.015);
  EXPECT_NEAR(inputs / kShots, 15, 0.1);
}

TEST(DrawnLoad, IsTheSameForTheSameSeed) {
  const auto draw = [](std::uint64_t seed) {
    DrawnLoad load = kLoad;
    load.seed = seed;
    const auto source = draw_load(load);
    Shot shot;
    std::vector<std::int64_t> values;
    for (int i = 0; i < 20; ++i) {
      (void)source->next(shot);
      values.insert(values.end(), {shot.at.count(), shot.input_tokens});
    }
    return values;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(DrawnLoad, WithoutARateEverythingIsDueAtOnce) {
  DrawnLoad load = kLoad;
  load.rate = 0;
  Shot shot;
  EXPECT_TRUE(draw_load(load)->next(shot));
  EXPECT_EQ(shot.at, Duration{});
}

}  // namespace
}  // namespace heddle::bench
