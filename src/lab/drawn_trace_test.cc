#include "lab/drawn_trace.h"

#include <cmath>

#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;

DrawnTrace steady() {
  return {.rate = 50,
          .duration = 200s,
          .input = {.least = 10, .most = 20},
          .output = {.least = 4, .most = 4}};
}

TEST(DrawnTrace, TheSameSeedGivesTheSameRequests) {
  const auto a = draw_trace(steady(), 3, 7);
  const auto b = draw_trace(steady(), 3, 7);
  const auto c = draw_trace(steady(), 3, 8);
  ASSERT_EQ(a.size(), b.size());
  bool different = a.size() != c.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].at, b[i].at);
    EXPECT_EQ(a[i].model, b[i].model);
    different = different || a[i].at != c[i].at;
  }
  EXPECT_TRUE(different);
}

TEST(DrawnTrace, ComesInOrderAtItsRateWithItsLengths) {
  const auto shots = draw_trace(steady(), 4, 1);
  EXPECT_NEAR(static_cast<double>(shots.size()), 10'000, 400);
  Duration before{};
  for (const bench::Shot& shot : shots) {
    EXPECT_GE(shot.at, before);
    EXPECT_LE(shot.at, 200s);
    EXPECT_GE(shot.input_tokens, 10);
    EXPECT_LE(shot.input_tokens, 20);
    EXPECT_EQ(shot.output_tokens, 4);
    before = shot.at;
  }
}

TEST(DrawnTrace, SharesFollowZipf) {
  DrawnTrace trace = steady();
  trace.zipf = 1;
  std::vector<double> counts(3);
  for (const bench::Shot& shot : draw_trace(trace, 3, 2)) {
    counts[shot.model] += 1;
  }
  EXPECT_NEAR(counts[0] / counts[1], 2, 0.15);
  EXPECT_NEAR(counts[0] / counts[2], 3, 0.25);
}

TEST(DrawnTrace, GapsVaryAsTheyAreToldTo) {
  for (const double cv : {0.25, 1.0, 3.0}) {
    DrawnTrace trace = steady();
    trace.cv = cv;
    trace.duration = 2000s;
    const auto shots = draw_trace(trace, 1, 3);
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 1; i < shots.size(); ++i) {
      const double gap = static_cast<double>((shots[i].at - shots[i - 1].at).count()) * 1e-9;
      sum += gap;
      squares += gap * gap;
    }
    const auto count = static_cast<double>(shots.size() - 1);
    const double mean = sum / count;
    EXPECT_NEAR(mean, 0.02, 0.001) << cv;
    EXPECT_NEAR(std::sqrt(squares / count - mean * mean) / mean, cv, 0.06 * cv) << cv;
  }
}

TEST(DrawnTrace, PeaksComeInTurn) {
  DrawnTrace trace = steady();
  trace.period = 200s;
  trace.depth = 1;
  trace.in_turn = true;
  std::vector<std::vector<double>> quarters(2, std::vector<double>(4));
  for (const bench::Shot& shot : draw_trace(trace, 2, 4)) {
    quarters[shot.model][static_cast<std::size_t>(shot.at / 50s)] += 1;
  }
  // sin is above zero in the first half of its period, and the second model is half a period later.
  EXPECT_GT(quarters[0][0] + quarters[0][1], 3 * (quarters[0][2] + quarters[0][3]));
  EXPECT_GT(quarters[1][2] + quarters[1][3], 3 * (quarters[1][0] + quarters[1][1]));
}

TEST(DrawnTrace, SquareWavesAreUpForAsLongAsTheirTurn) {
  DrawnTrace trace = steady();
  trace.period = 200s;
  trace.depth = 0.8;
  trace.in_turn = true;
  trace.square = true;
  std::vector<std::vector<double>> quarters(4, std::vector<double>(4));
  const auto shots = draw_trace(trace, 4, 5);
  for (const bench::Shot& shot : shots) {
    quarters[shot.model][static_cast<std::size_t>(shot.at / 50s) % 4] += 1;
  }
  for (std::size_t model = 0; model < 4; ++model) {
    double all = 0;
    for (const double quarter : quarters[model]) {
      all += quarter;
    }
    // A quarter of the time at 0.2 + 4 * 0.8 of the mean, three at 0.2 of it.
    EXPECT_NEAR(quarters[model][model] / all, 0.85, 0.04) << model;
  }
  EXPECT_NEAR(static_cast<double>(shots.size()) / to_seconds(trace.duration), trace.rate, 4);
}

}  // namespace
}  // namespace heddle::lab
