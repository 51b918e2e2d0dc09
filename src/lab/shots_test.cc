#include "lab/shots.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;

LabFile lab_with(const std::string& trace) {
  const Result<LabFile> lab =
      parse_lab_file("config: {models: {a: {path: x}, b: {path: y}}}\ntrace: " + trace,
                     "e.yaml",
                     [](const std::string&) { return std::nullopt; },
                     {.cores = {0}, .memory = 1U << 30U});
  HEDDLE_CHECK(lab.has_value());
  return *lab;
}

/// A row a second, from 0 to 99 s.
std::vector<TraceFileRow> rows() {
  std::vector<TraceFileRow> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back({.at = 1s * i,
                   .label = i % 3 == 0 ? "b" : (i % 3 == 1 ? "z" : "y"),
                   .input_tokens = 100 * (i + 1),
                   .output_tokens = 10});
  }
  return all;
}

TEST(TakeShots, EverySeedTakesItsOwnStretchInTheRunsTime) {
  LabFile lab =
      lab_with("{file: t, from: 20s, window: 30s, length: 0.1, cut_input: 300, cut_output: 4}");
  lab.scale = 10;
  const auto shots = take_shots(lab, rows(), 1).value();
  ASSERT_EQ(shots.size(), 30U);
  EXPECT_EQ(shots[0].at, 0s);
  EXPECT_EQ(shots[7].at, 700ms);
  // Row 50: "y", the first label that is no model's, so "a"; its 5,100 tokens become 510, then 300.
  EXPECT_EQ(shots[0].model, 0U);
  EXPECT_EQ(shots[0].input_tokens, 300);
  EXPECT_EQ(shots[0].output_tokens, 1);
  EXPECT_EQ(shots[1].model, 1U) << "row 51 says \"b\"";
  EXPECT_EQ(shots[2].model, 1U) << "row 52 says \"z\", the second of the others";
  EXPECT_EQ(take_shots(lab, rows(), 0).value()[1].input_tokens, 220);
  EXPECT_FALSE(take_shots(lab, rows(), 3)) << "nothing is left";
}

TEST(TakeShots, KeepsAPart) {
  const LabFile lab = lab_with("{file: t, keep: 0.5}");
  const auto some = take_shots(lab, rows(), 1).value();
  EXPECT_GT(some.size(), 30U);
  EXPECT_LT(some.size(), 70U);
  EXPECT_EQ(take_shots(lab, rows(), 1).value().size(), some.size());
}

TEST(TakeShots, DrawsWhereThereIsNoFile) {
  LabFile lab = lab_with("{rate: 10, duration: 60s, input_tokens: 5, output_tokens: 5}");
  lab.scale = 6;
  const auto shots = take_shots(lab, {}, 1).value();
  EXPECT_GT(shots.size(), 400U);
  EXPECT_LE(shots.back().at, 10s);
  lab.warmup = 20s;
  EXPECT_FALSE(take_shots(lab, {}, 1));
}

TEST(PlayedAgain, ScattersALittle) {
  std::vector<bench::Shot> shots;
  for (int i = 0; i < 100; ++i) {
    shots.push_back({.at = i * 1ms, .input_tokens = i});
  }
  const auto times = [](const std::vector<bench::Shot>& list) {
    std::vector<Duration> all;
    for (const bench::Shot& shot : list) {
      all.push_back(shot.at);
    }
    return all;
  };
  EXPECT_EQ(times(played_again(shots, 0)), times(shots));
  const std::vector<bench::Shot> again = played_again(shots, 1);
  EXPECT_NE(times(again), times(shots));
  EXPECT_NE(times(again), times(played_again(shots, 2)));
  const std::vector<Duration> sorted = times(again);
  EXPECT_TRUE(std::is_sorted(sorted.begin(), sorted.end()));
  for (const bench::Shot& shot : again) {
    EXPECT_GE(shot.at, shot.input_tokens * 1ms);
    EXPECT_LT(shot.at, (shot.input_tokens + 2) * 1ms);
  }
}

TEST(Scatter, IsBelowTheMostAndNothingAtFirst) {
  EXPECT_EQ(scatter(0, 250ms), 0ms);
  std::vector<Duration> all;
  for (std::int64_t play = 1; play < 50; ++play) {
    all.push_back(scatter(play, 250ms));
    EXPECT_LT(all.back(), 250ms);
  }
  EXPECT_LT(*std::min_element(all.begin(), all.end()), 50ms);
  EXPECT_GT(*std::max_element(all.begin(), all.end()), 200ms);
}

TEST(PlaceInWindow, IsAnywhereInOneAndTheSameEachTime) {
  std::vector<Duration> places;
  for (std::int64_t seed = 0; seed < 100; ++seed) {
    places.push_back(place_in_window(seed, 12s));
    EXPECT_GE(places.back(), 0s);
    EXPECT_LT(places.back(), 12s);
    EXPECT_EQ(place_in_window(seed, 12s), places.back());
  }
  std::sort(places.begin(), places.end());
  EXPECT_LT(places[10], 4s);
  EXPECT_GT(places[90], 8s);
}

TEST(PlaceInWindow, ComesOnceAWindow) {
  EXPECT_EQ(until_place(3s, 24s, 12s), 3s);
  EXPECT_EQ(until_place(3s, 27s, 12s), 0s);
  EXPECT_EQ(until_place(3s, 28s, 12s), 11s);
}

TEST(KeepsStep, WithWindowsNoLongerThanAllRequests) {
  const std::vector<bench::Shot> shots{{.at = 1s}, {.at = 20s}};
  EXPECT_TRUE(keeps_step(shots, 5s));
  EXPECT_TRUE(keeps_step(shots, 20s));
  EXPECT_FALSE(keeps_step(shots, 21s));
  EXPECT_FALSE(keeps_step({}, 5s));
}

TEST(ShotList, GivesThemInOrder) {
  const std::vector<bench::Shot> shots{{.at = 1s}, {.at = 2s}};
  ShotList list(shots);
  bench::Shot shot;
  ASSERT_TRUE(list.next(shot));
  EXPECT_EQ(shot.at, 1s);
  ASSERT_TRUE(list.next(shot));
  EXPECT_EQ(shot.at, 2s);
  EXPECT_FALSE(list.next(shot));
}

}  // namespace
}  // namespace heddle::lab
