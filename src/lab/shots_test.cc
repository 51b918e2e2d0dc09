#include "lab/shots.h"

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
