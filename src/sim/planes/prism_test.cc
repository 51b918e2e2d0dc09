#include "sim/planes/prism.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

constexpr double kActivate = 16.06e9 / 22.7e9;  // Through all GPUs of the server.

// Two models of 16 GB share a GPU from the start: neither waits for the other's memory.
TEST(Prism, ModelsShareAGpu) {
  const TestRun run = run_policy(
      "prism", test_cluster(1, 1), test_models(2), {row_at(1, 0, 128, 8), row_at(2, 1, 128, 8)});
  EXPECT_NEAR(run.request(0).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_NEAR(run.request(1).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_EQ(run.counts.starts, 2);
}

// Five models do not fit in 72 GB. The fifth replaces one that has been idle for longer than five
// times what loading takes, and not before.
TEST(Prism, AnIdleModelGoesWhenItsRoomIsWanted) {
  const TestRun run = run_policy("prism",
                                 test_cluster(1, 1),
                                 test_models(5),
                                 {row_at(1, 0, 128, 8),
                                  row_at(2, 1, 128, 8),
                                  row_at(3, 2, 128, 8),
                                  row_at(4, 3, 128, 8),
                                  row_at(40, 4, 128, 8)});
  EXPECT_EQ(run.counts.completed, 5);
  EXPECT_EQ(run.counts.evictions, 1);
  // Unmapping 16 GB of pages, 40 us each, then the load.
  EXPECT_NEAR(run.request(4).ttft(), 7659 * 40e-6 + kActivate + prefill_seconds(128), 0.02);
}

// Twice as many models as fit, all with objectives that loading alone breaks, take turns: whoever
// waits for room looks again until somebody has been idle for long enough.
TEST(Prism, ModelsThatDoNotFitTakeTurns) {
  std::vector<ModelSpec> models = test_models(8);
  for (ModelSpec& model : models) {
    model.slo_ttft = std::chrono::milliseconds(500);
  }
  std::vector<TraceRow> rows;
  for (int i = 0; i < 48; ++i) {
    rows.push_back(row_at(1 + 4.0 * i, static_cast<std::uint64_t>(i % 8), 128, 8));
  }
  const TestRun run = run_policy("prism", test_cluster(1, 1), models, rows);
  EXPECT_EQ(run.counts.completed, 48);
  for (const auto& [number, served] : run.witness.served) {
    EXPECT_LT(served.ttft(), 10) << number;
  }
}

// Ten prompts of which any one alone is in time, but not all: by Moore-Hodgson the short ones are.
TEST(Prism, TheQueueMeetsMoreDeadlinesThanOrderOfArrival) {
  std::vector<ModelSpec> models = test_models(1);
  models[0].slo_ttft = std::chrono::milliseconds(600);
  std::vector<TraceRow> rows;
  for (int i = 0; i < 4; ++i) {
    rows.push_back(row_at(1 + 1e-6 * i, 0, 8000, 2));
  }
  for (int i = 0; i < 6; ++i) {
    rows.push_back(row_at(1.001 + 1e-6 * i, 0, 1000, 2));
  }
  const auto on_time = [&](const char* queue) {
    const TestRun run = run_policy("prism", test_cluster(1, 1), models, rows, {{"queue", queue}});
    EXPECT_EQ(run.counts.completed, 10);
    std::int64_t met = 0;
    for (const auto& [number, served] : run.witness.served) {
      met += served.ttft() <= 0.6 ? 1 : 0;
    }
    return met;
  };
  EXPECT_GT(on_time("1"), on_time("0"));
}

// Everything asks for model 0 and 1, which the offline rates put together: one of them moves.
TEST(Prism, AModelMovesWherePressureIsLess) {
  PlaneInputs inputs{
      .demand = {{.requests_per_second = 0.01, .input_tokens = 9, .output_tokens = 9},
                 {.requests_per_second = 0.01, .input_tokens = 9, .output_tokens = 9},
                 {.requests_per_second = 50, .input_tokens = 99, .output_tokens = 99}}};
  std::vector<TraceRow> rows;
  for (int i = 0; i < 400; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, static_cast<std::uint64_t>(i % 2), 1000, 200));
  }
  auto plane = make_plane("prism", inputs);
  ASSERT_TRUE(plane.has_value());
  const TestRun run = run_world(test_cluster(1, 2), test_models(3), **plane, rows);
  EXPECT_EQ(run.counts.completed, 400);
  EXPECT_GE(run.witness.count("start m0 balance") + run.witness.count("start m1 balance"), 1);
}

}  // namespace
}  // namespace heddle::sim
