#include "sim/planes/qlm.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

// One GPU: the second model's group waits until the first's has ended, then for another engine.
TEST(Qlm, AGpuServesOneModelAtATime) {
  const TestRun run = run_policy("qlm",
                                 test_cluster(1, 1),
                                 test_models(2),
                                 {row_at(1, 0, 128, 8), row_at(2, 0, 128, 8), row_at(3, 1, 128, 8)},
                                 {{"swap", "20"}});
  EXPECT_NEAR(run.request(0).ttft(), 20 + prefill_seconds(128), 0.05);
  EXPECT_GT(run.request(2).first_token, run.request(1).finished + 20);
  EXPECT_EQ(run.counts.starts, 2);
  EXPECT_EQ(run.counts.completed, 3);
}

TEST(Qlm, TwoGpusServeTwoModels) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 40; ++i) {
    rows.push_back(row_at(1 + i, static_cast<std::uint64_t>(i % 2), 128, 8));
  }
  const TestRun run =
      run_policy("qlm", test_cluster(1, 2), test_models(2), rows, {{"swap", "5"}, {"seed", "3"}});
  EXPECT_EQ(run.counts.completed, 40);
}

// Whenever its group has run empty the next one goes to the queue where the model is already.
TEST(Qlm, AModelKeepsItsQueue) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 20; ++i) {
    rows.push_back(row_at(1 + 60.0 * i, 0, 128, 8));
  }
  const TestRun run = run_policy("qlm", test_cluster(1, 4), test_models(1), rows);
  EXPECT_EQ(run.counts.starts, 1);
  EXPECT_NEAR(run.request(19).ttft(), prefill_seconds(128), 0.01);
}

}  // namespace
}  // namespace heddle::sim
