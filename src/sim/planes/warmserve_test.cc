#include "sim/planes/warmserve.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

constexpr double kLoad = 16.06e9 / 50e9;  // From host memory over PCIe.
constexpr double kAttach = 0.55;

// A miss loads and attaches. After 5 s without load the instance stops; its weights stay, and the
// next start takes only the attachment. Without any forecast: SLLM-GPU.
TEST(WarmServe, WhatAStoppedInstanceLeavesIsHit) {
  const TestRun run = run_policy("sllm-gpu",
                                 test_cluster(1, 1),
                                 test_models(1),
                                 {row_at(1, 0, 128, 8), row_at(30, 0, 128, 8)});
  EXPECT_NEAR(run.request(0).ttft(), kLoad + kAttach + prefill_seconds(128), 0.01);
  EXPECT_NEAR(run.request(1).ttft(), kAttach + prefill_seconds(128), 0.01);
  EXPECT_EQ(run.counts.hits, 1);
}

// Model 1 takes the only GPU, so model 0's weights go; model 0 comes back to a miss.
TEST(WarmServe, WithoutForecastWeightsStayUntilOverwritten) {
  const TestRun run =
      run_policy("sllm-gpu",
                 test_cluster(1, 1),
                 test_models(2),
                 {row_at(1, 0, 128, 8), row_at(30, 1, 128, 8), row_at(60, 0, 128, 8)});
  EXPECT_EQ(run.counts.hits, 0);
  EXPECT_EQ(run.witness.count("evict m0 make_room"), 1);
  EXPECT_NEAR(run.request(2).ttft(), kLoad + kAttach + prefill_seconds(128), 0.02);
}

// Model 0 comes every 20 s, and windows of 20 s tell. Model 1 comes once in between and takes the
// GPU; when it drains, the forecast brings model 0's weights back before its next request.
TEST(WarmServe, AForecastLoadsWeightsBeforeTheyAreAskedFor) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 9; ++i) {
    rows.push_back(row_at(1 + 20.0 * i, 0, 128, 300));
    if (i == 7) {
      rows.push_back(row_at(150, 1, 128, 8));
    }
  }
  const auto run = [&](const char* prewarm) {
    return run_policy("warmserve",
                      test_cluster(1, 1),
                      test_models(2),
                      rows,
                      {{"window", "20"}, {"prewarm", prewarm}});
  };
  const TestRun with = run("1");
  const TestRun without = run("0");
  EXPECT_EQ(with.witness.count("start m0 forecast"), 1);
  EXPECT_NEAR(with.request(9).ttft(), kAttach + prefill_seconds(128), 0.01);
  EXPECT_EQ(without.witness.count("start m0 forecast"), 0);
  EXPECT_NEAR(without.request(9).ttft(), kLoad + kAttach + prefill_seconds(128), 0.02);
}

// Nine requests of ten ask for a second instance. Who comes while that starts is sent there, as it
// has the fewest requests, and waits for it, though the first still has room.
TEST(WarmServe, WhoIsSentToAnInstanceThatStartsWaitsForIt) {
  std::vector<ModelSpec> models = test_models(1);
  models[0].max_sequences = 10;
  std::vector<TraceRow> rows(9, row_at(1, 0, 128, 4000));
  rows.push_back(row_at(6.1, 0, 128, 8));
  rows.push_back(row_at(20, 0, 128, 8));
  const TestRun run = run_policy("sllm-gpu", test_cluster(1, 2), models, rows);
  EXPECT_EQ(run.witness.count("start m0 scale_up"), 1);
  EXPECT_GT(run.request(9).ttft(), 0.2);
  EXPECT_LT(run.request(10).ttft(), 0.1);
}

// The same every 20 s, and windows of 20 s: who forecasts says how well; SLLM-GPU does not
// forecast.
TEST(WarmServe, TellsHowFarItsForecastsWereOff) {
  const auto error = [](const char* policy, std::map<std::string, std::string> flags) {
    auto plane = make_plane(policy, {.flags = std::move(flags)});
    HEDDLE_CHECK(plane.has_value());
    std::vector<TraceRow> rows;
    for (int i = 0; i < 20; ++i) {
      rows.push_back(row_at(1 + 20.0 * i, 0, 128, 300));
    }
    run_world(test_cluster(1, 1), test_models(1), **plane, rows);
    return (*plane)->forecast_error();
  };
  ASSERT_TRUE(error("warmserve", {{"window", "20"}}));
  EXPECT_LT(*error("warmserve", {{"window", "20"}}), 0.3);
  ASSERT_TRUE(error("hydraserve", {}));
  EXPECT_GT(*error("hydraserve", {}), 0.9) << "it expects what the last ten seconds brought";
  EXPECT_FALSE(error("sllm-gpu", {{"window", "20"}}));
}

}  // namespace
}  // namespace heddle::sim
