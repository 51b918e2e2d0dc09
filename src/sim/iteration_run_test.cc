#include "sim/iteration_run.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

std::int64_t draw(Rng& rng, std::uint64_t bound) {
  return static_cast<std::int64_t>(rng.below(bound));
}

TEST(FloorSum, IsTheSum) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const std::int64_t n = draw(rng, 200);
    const std::int64_t m = 1 + draw(rng, 1500);
    const std::int64_t a = draw(rng, 5000);
    const std::int64_t b = draw(rng, 50'000);
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += (a * i + b) / m;
    }
    ASSERT_EQ(floor_sum(n, m, a, b), sum) << "seed " << seed;
  }
}

TEST(IterationRun, ClosedFormIsSteppingToTheNanosecond) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    IterationRun run;
    struct Line {
      std::int64_t base;
      std::int64_t growth;
    };
    std::vector<Line> lines;
    for (std::uint64_t i = 1 + rng.below(3); i > 0; --i) {
      lines.push_back({draw(rng, 50'000'000), draw(rng, rng.below(2) == 0 ? 200'000 : 3)});
      run.add_line(lines.back().base, lines.back().growth);
    }
    const std::int64_t constant = draw(rng, 1000);
    run.set_constant(Duration(constant));
    IterationRun rest = run;
    rest.skip(123);
    Duration stepped{};
    for (std::int64_t k = 0; k < 700; ++k) {
      ASSERT_TRUE(k < 123 || rest.at(k - 123) == run.at(k)) << "seed " << seed;
      ASSERT_EQ(run.sum(k), stepped) << "seed " << seed << ", iteration " << k;
      std::int64_t longest = 0;
      for (const Line& line : lines) {
        longest = std::max(longest, line.base + line.growth * k);
      }
      ASSERT_EQ(run.at(k), Duration(longest / 1000 + constant));
      stepped += run.at(k);
    }
  }
}

TEST(IterationRun, CountUntilIsTheFirstThatReaches) {
  Rng rng(7);
  IterationRun run;
  run.add_line(9'000'000, 0);
  run.add_line(6'000'500, 31'700);
  for (int i = 0; i < 300; ++i) {
    const Duration time(draw(rng, 5'000'000));
    const std::int64_t count = run.count_until(time, 400);
    EXPECT_TRUE(count == 400 || run.sum(count) >= time);
    EXPECT_TRUE(count == 1 || run.sum(count - 1) < time);
  }
  EXPECT_EQ(run.count_until(Duration{0}, 400), 1);
}

}  // namespace
}  // namespace heddle::sim
