#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

/// Model 0 runs on GPU 0, of its sequences every second one is a guest on GPU 1; `then` is done a
/// second later.
TestRun with_guests(const TestPlane::Decide& then,
                    const std::function<void(World&)>& prepare = {}) {
  TestPlane plane([&then](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      for (std::uint64_t id = 0; id < 2; ++id) {
        actions.start({.model = ModelId(id), .stages = {{.gpus = {GpuId(id)}}}}, Reason::kMiss);
      }
      actions.timer(Instant(std::chrono::seconds(4)), 1);
    } else if (notice.kind == NoticeKind::kArrival) {
      const ReplicaId hot = world.replicas_of(ModelId(0)).front();
      actions.weave(hot, {.host = GpuId(1), .share = 0.5}, Reason::kOffload);
      actions.dispatch(notice.request, hot, Reason::kRunning);
    } else if (notice.kind == NoticeKind::kTimer) {
      then(notice, world, actions);
    }
  });
  std::vector<TraceRow> rows;
  for (int i = 0; i < 8; ++i) {
    rows.push_back(row_at(3, 0, 1000, 400));
  }
  return run_world(test_cluster(1, 2), test_models(2), plane, rows, prepare);
}

std::int64_t guest_pages(const World& world) {
  return world.memory().reserved(world.replica(world.replicas_of(ModelId(0)).front())->guest_kv,
                                 ledger::device_pool(GpuId(1)));
}

TEST(Guests, StayWhereTheyAreWhenTheModelThereIsEvicted) {
  const TestRun run = with_guests([](const Notice&, const World& world, Actions& actions) {
    EXPECT_GT(guest_pages(world), 0);
    actions.evict(world.replicas_of(ModelId(1)).front(), Reason::kMakeRoom, std::nullopt);
    EXPECT_GT(guest_pages(world), 0);
  });
  EXPECT_EQ(run.counts.completed, 8);
  EXPECT_EQ(run.witness.count("recall m0 make_room"), 0);
}

TEST(Guests, AreComputedAgainAtHomeWhenTheirGpuFails) {
  const TestRun run = with_guests([](const Notice&, const World&, Actions&) {},
                                  [](World& world) {
                                    world.inject(Instant(std::chrono::milliseconds(4500)),
                                                 World::Fault::kGpu,
                                                 /*target=*/1,
                                                 /*factor=*/0);
                                  });
  EXPECT_EQ(run.counts.completed, 8);
  EXPECT_EQ(run.witness.count("recall m0 fault"), 1);
}

TEST(Guests, GiveTheirPagesBackToALoadThatNeedsThem) {
  const TestRun run = with_guests([](const Notice&, const World& world, Actions& actions) {
    if (world.replicas_of(ModelId(1)).size() == 1) {
      // As large as what is free there, and more.
      for (int i = 0; i < 5; ++i) {
        actions.start({.model = ModelId(1), .stages = {{.gpus = {GpuId(1)}}}}, Reason::kMiss);
      }
    }
  });
  EXPECT_EQ(run.counts.completed, 8);
  EXPECT_EQ(run.witness.count("recall m0 make_room"), 1);
}

}  // namespace
}  // namespace heddle::sim
