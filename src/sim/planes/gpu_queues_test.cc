#include "sim/planes/gpu_queues.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

// Prompts worth more than is kept ahead stay in the queue, and are counted there.
TEST(GpuQueues, KeepsBackWhatAnEngineWouldNotReadAtOnce) {
  GpuQueues queues({.ahead = std::chrono::milliseconds(1)});
  std::int64_t most = 0;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    const GpuId gpu(0);
    if (notice.kind == NoticeKind::kStart) {
      queues.resize(1);
      actions.start(
          {.model = ModelId(0), .stages = {{.gpus = {gpu}}}, .source = WeightSource::kNothing},
          Reason::kStatic);
    } else if (notice.kind == NoticeKind::kArrival) {
      const ReplicaId replica = world.replicas_of(ModelId(0))[0];
      queues.add(world, notice.request, replica);
      queues.pass(world, actions, gpu);
      most = std::max(most, queues.queued(replica));
      EXPECT_GT(queues.backlog(world, gpu), Duration{});
    } else if (notice.kind == NoticeKind::kFirstToken) {
      queues.read(notice.request);
      const GpuQueues::Left left = queues.pass(world, actions, gpu);
      EXPECT_TRUE(left.homeless.empty());
    }
  });
  std::vector<TraceRow> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(row_at(1 + 1e-6 * i, 0, 2000, 2));
  }
  const TestRun run = run_world(test_cluster(1, 1), test_models(1), plane, rows);
  EXPECT_EQ(run.counts.completed, 6);
  EXPECT_GE(most, 4);
}

// A queue longer than what one pass looks at: the newcomer with the nearest deadline goes first all
// the same, and everybody has a turn.
TEST(GpuQueues, ALongQueueIsServedByDeadline) {
  std::vector<ModelSpec> models = test_models(2);
  models[0].slo_ttft = std::chrono::hours(1);
  const auto waiting = static_cast<int>(3 * GpuQueues::kLookedAt);
  std::vector<TraceRow> rows;
  for (int i = 0; i < waiting; ++i) {
    rows.push_back(row_at(30, 0, 2000, 2));
  }
  rows.push_back(row_at(30.5, 1, 100, 2));
  const TestRun run = run_policy("prism", test_cluster(1, 1), models, rows);
  EXPECT_EQ(run.counts.completed, waiting + 1);
  EXPECT_LT(run.request(static_cast<std::uint64_t>(waiting)).ttft(), 1);
  EXPECT_GT(run.request(static_cast<std::uint64_t>(waiting) - 1).ttft(), 5);
}

}  // namespace
}  // namespace heddle::sim
