#include "sim/planes/swapserve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::ElementsAre;

constexpr double kIn = 0.235 + 0.143 * 16.06;  // A lean engine of 16.06 GB returns.
constexpr double kOut = kIn / 1.2;
constexpr double kUnmap = 7659 * 40e-6;

TEST(SwapServe, AnEngineReturnsAsAWhole) {
  const TestRun run = run_policy("swapserve",
                                 test_cluster(1, 1),
                                 test_models(1),
                                 {row_at(1, 0, 128, 8), row_at(9, 0, 128, 8)});
  EXPECT_NEAR(run.request(0).ttft(), kIn + prefill_seconds(128), 0.01);
  EXPECT_NEAR(run.request(1).ttft(), prefill_seconds(128), 1e-6);
}

// Engines of 25 GB: two run on 72 GB, the third waits until the first, used least recently, is
// saved. (1 % is kept free, so not three.)
TEST(SwapServe, TheLeastRecentlyUsedMakesRoom) {
  const TestRun run =
      run_policy("swapserve",
                 test_cluster(1, 1),
                 test_models(3),
                 {row_at(1, 0, 128, 8), row_at(2, 1, 128, 8), row_at(30, 2, 128, 8)},
                 {{"paper", "1"}});
  EXPECT_NEAR(run.request(2).ttft(), kOut + kUnmap + kIn + prefill_seconds(128), 0.05);
  EXPECT_THAT(
      run.witness.acts,
      ElementsAre(
          "start m0 swap", "start m1 swap", "drain m0 swap", "evict m0 swap", "start m2 swap"));
}

// Both need all of the GPU and are asked for all the time: neither starves, and each stays for at
// least three times what its return takes.
TEST(SwapServe, TwoThatTakeTurnsDoNotThrash) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 60; ++i) {
    rows.push_back(row_at(1 + i, static_cast<std::uint64_t>(i % 2), 128, 50));
  }
  const TestRun run =
      run_policy("swapserve", test_cluster(1, 1), test_models(2), rows, {{"kv_gb", "40"}});
  const TestRun paper = run_policy(
      "swapserve", test_cluster(1, 1), test_models(2), rows, {{"kv_gb", "40"}, {"paper", "1"}});
  EXPECT_EQ(run.counts.completed, 60);
  EXPECT_EQ(paper.counts.completed, 60);
  EXPECT_LT(run.counts.starts, paper.counts.starts);
}

}  // namespace
}  // namespace heddle::sim
