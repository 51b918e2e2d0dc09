#include "sim/planes/serverless.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::ElementsAre;

constexpr double kWeights = 16.06e9;

// Container 2 s, context 1 s, library 4.7 s; then 16.06 GB at 10 GB/s, then at 50 GB/s over PCIe,
// then 0.158 s/GB of a stock loader, then 1.5 s of the engine; then the prompt.
TEST(Serverless, AStockEngineDoesOneThingAfterTheOther) {
  const TestRun run =
      run_policy("serverless-vllm", test_cluster(1, 1), test_models(1), {row_at(5, 0, 128, 8)});
  const double start = 7.7 + kWeights / 10e9 + kWeights / 50e9 + kWeights * 0.158e-9 + 1.5;
  EXPECT_NEAR(run.request(0).ttft(), start + prefill_seconds(128), 0.01);
}

TEST(Serverless, AnInstanceEndsAfterItsKeepAlive) {
  const std::vector<TraceRow> rows{row_at(0, 0, 128, 8), row_at(40, 0, 128, 8)};
  const auto starts = [&](const char* keep_alive) {
    return run_policy("serverless-vllm",
                      test_cluster(1, 1),
                      test_models(1),
                      rows,
                      {{"keep_alive", keep_alive}})
        .witness.count("start m0 miss");
  };
  EXPECT_EQ(starts("10"), 2);
  EXPECT_EQ(starts("60"), 1);
}

// The second time the weights are in host memory: 94 GB/s, but PCIe has 50.
TEST(Serverless, ServerlessLlmStreamsAndKeepsWeightsInHostMemory) {
  const TestRun run = run_policy("serverlessllm",
                                 test_cluster(1, 1),
                                 test_models(1),
                                 {row_at(0, 0, 128, 8), row_at(100, 0, 128, 8)},
                                 {},
                                 Begin::kEmpty);
  const double fixed = 7.7 + 1.5 + prefill_seconds(128);
  EXPECT_NEAR(run.request(0).ttft(), fixed + kWeights / 10e9, 0.01);
  EXPECT_NEAR(run.request(1).ttft(), fixed + kWeights / 50e9 + kWeights * 0.1e-9, 0.01);
}

TEST(Serverless, AQueueForTwoInstancesStartsTwo) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 9; ++i) {  // Eight for each.
    rows.push_back(row_at(0, 0, 128, 8));
  }
  const TestRun run = run_policy("serverless-vllm", test_cluster(2, 1), test_models(1), rows);
  EXPECT_EQ(run.counts.completed, 9);
  EXPECT_THAT(run.witness.acts, ElementsAre("start m0 miss", "start m0 miss"));
}

}  // namespace
}  // namespace heddle::sim
