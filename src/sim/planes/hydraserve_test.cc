#include "sim/planes/hydraserve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::ElementsAre;

constexpr double kWeights = 16.06e9;

/// Four servers of one GPU behind networks of 1 GB/s.
ClusterSpec slow_cluster() {
  ClusterSpec cluster = test_cluster(4, 1);
  for (HostSpec& host : cluster.hosts) {
    host.links.nic = 1e9;
  }
  return cluster;
}

std::vector<ModelSpec> models_with_ttft(Duration ttft) {
  std::vector<ModelSpec> models = test_models(1);
  models[0].slo_ttft = ttft;
  return models;
}

// One worker alone needs 16 s for its weights. Two, of which one can hold all, meet 11 s and
// reserve the least: 8.03 s for half of the weights over each network (containers take 7.7 s beside
// that), then 0.55 s, 0.2 s for the group, and the prompt through two halves that have a GPU each.
TEST(HydraServe, TwoServersLoadAModelThatOneWouldLoadTooLate) {
  const TestRun run = run_policy("hydraserve",
                                 slow_cluster(),
                                 models_with_ttft(std::chrono::seconds(11)),
                                 {row_at(1, 0, 128, 2000)});
  EXPECT_NEAR(run.request(0).ttft(), kWeights / 2 / 1e9 + 0.55 + 0.2 + prefill_seconds(128), 0.02);
  EXPECT_THAT(run.witness.acts,
              ElementsAre("start m0 group", "merge m0 consolidate", "set_kv_limit m0 consolidate"));
  EXPECT_EQ(run.counts.merges, 1);
}

TEST(HydraServe, OneStageIsTheAblation) {
  const TestRun run = run_policy("hydraserve",
                                 slow_cluster(),
                                 models_with_ttft(std::chrono::seconds(11)),
                                 {row_at(1, 0, 128, 600)},
                                 {{"stages", "1"}});
  EXPECT_NEAR(run.request(0).ttft(), kWeights / 1e9 + 0.55 + prefill_seconds(128), 0.02);
  EXPECT_EQ(run.counts.merges, 0);
}

TEST(HydraServe, AnEasyObjectiveTakesOneServer) {
  const TestRun run = run_policy("hydraserve",
                                 slow_cluster(),
                                 models_with_ttft(std::chrono::seconds(60)),
                                 {row_at(1, 0, 128, 8)});
  EXPECT_THAT(run.witness.acts, ElementsAre("start m0 miss"));
}

// The second start finds the weights in host memory: bound by PCIe, 0.32 s, and so by the
// container.
TEST(HydraServe, ACacheSparesTheSecondFetch) {
  const TestRun run = run_policy("hydraserve",
                                 slow_cluster(),
                                 models_with_ttft(std::chrono::seconds(60)),
                                 {row_at(1, 0, 128, 8), row_at(100, 0, 128, 8)},
                                 {{"cache", "1"}},
                                 Begin::kEmpty);
  EXPECT_NEAR(run.request(0).ttft(), kWeights / 1e9 + 0.55 + prefill_seconds(128), 0.02);
  EXPECT_NEAR(run.request(1).ttft(), 7.7 + 0.55 + prefill_seconds(128), 0.02);
}

}  // namespace
}  // namespace heddle::sim
