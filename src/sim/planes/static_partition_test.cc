#include "sim/planes/static_partition.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

// Two models of equal rate on one GPU: each has half of what their weights and overheads leave.
TEST(StaticPartition, KvIsDividedByOfflineDemand) {
  std::int64_t limit = -1;
  PlaneInputs inputs{.demand = {{.requests_per_second = 1}, {.requests_per_second = 1}}};
  auto plane = make_plane("static", inputs);
  ASSERT_TRUE(plane.has_value());
  TestPlane look([&](const Notice& notice, const World& world, Actions& actions) {
    (*plane)->decide(notice, world, actions);
    if (notice.kind == NoticeKind::kServing) {
      limit = world.replica(notice.replica)->kv_limit;
      const std::int64_t rest = world.gpu(GpuId(0)).pages - 2 * (world.weight_pages(ModelId(0)) +
                                                                 world.overhead_pages(ModelId(0)));
      EXPECT_EQ(limit, rest / 2);
    }
  });
  const TestRun run = run_world(test_cluster(1, 1), test_models(2), look, {row_at(1, 0, 128, 4)});
  EXPECT_EQ(run.counts.completed, 1);
  EXPECT_GT(limit, 0);
}

TEST(StaticPartition, MigCutsComputeToo) {
  const std::vector<TraceRow> rows{row_at(1, 0, 2048, 8), row_at(100, 1, 2048, 8)};
  const TestRun shared = run_policy("static", test_cluster(1, 1), test_models(2), rows);
  const TestRun cut =
      run_policy("static", test_cluster(1, 1), test_models(2), rows, {{"mig", "1"}});
  EXPECT_GT(cut.request(0).ttft(), 1.9 * shared.request(0).ttft());
}

}  // namespace
}  // namespace heddle::sim
