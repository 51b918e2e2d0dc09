#include "sim/planes/muxserve.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

TEST(MuxServe, TheBusiestModelsAreKeptApart) {
  PlaneInputs inputs{
      .demand = {{.requests_per_second = 5, .input_tokens = 99, .output_tokens = 99},
                 {.requests_per_second = 4, .input_tokens = 99, .output_tokens = 99},
                 {.requests_per_second = 1, .input_tokens = 99, .output_tokens = 99}}};
  auto plane = make_plane("muxserve", inputs);
  ASSERT_TRUE(plane.has_value());
  std::vector<GpuId> where(3);
  TestPlane look([&](const Notice& notice, const World& world, Actions& actions) {
    (*plane)->decide(notice, world, actions);
    if (notice.kind == NoticeKind::kServing) {
      where[notice.model.value()] = world.replica(notice.replica)->gpus[0];
      EXPECT_GT(world.replica(notice.replica)->kv_limit, 0);
      EXPECT_LT(world.replica(notice.replica)->spec.mps_percent, 100);
    }
  });
  const TestRun run = run_world(test_cluster(1, 2), test_models(3), look, {row_at(1, 0, 128, 4)});
  EXPECT_EQ(run.counts.completed, 1);
  EXPECT_NE(where[0], where[1]);
  EXPECT_EQ(where[1], where[2]);
}

// One model is busy and its neighbour is not: quota moves over, which elastic KV needs none of.
TEST(MuxServe, QuotasFollowUse) {
  std::vector<TraceRow> rows{row_at(0.5, 1, 128, 4)};
  for (int i = 0; i < 120; ++i) {
    rows.push_back(row_at(1 + 0.01 * i, 0, 1800, 600));
  }
  const TestRun quotas = run_policy("muxserve", test_cluster(1, 1), test_models(2), rows);
  const TestRun elastic = run_policy("muxserve++", test_cluster(1, 1), test_models(2), rows);
  EXPECT_EQ(quotas.counts.completed, 121);
  EXPECT_EQ(elastic.counts.completed, 121);
  EXPECT_GT(quotas.witness.count("set_kv_limit m0 quota"), 0);
  EXPECT_EQ(elastic.witness.count("set_kv_limit m0 quota"), 0);
}

}  // namespace
}  // namespace heddle::sim
