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

/// Model 0 on a GPU with little room, pages lent on GPU 1; `then` is done seven seconds later.
TestRun with_loan(std::int64_t pages, const TestPlane::Decide& then) {
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      actions.start({.model = ModelId(0), .stages = {{.gpus = {GpuId(0)}}}}, Reason::kMiss);
      actions.timer(Instant(std::chrono::seconds(10)), 1);
    } else if (notice.kind == NoticeKind::kArrival) {
      const ReplicaId hot = world.replicas_of(ModelId(0)).front();
      actions.weave(hot, {.host = GpuId(1), .pages = pages}, Reason::kOffload);
      actions.dispatch(notice.request, hot, Reason::kRunning);
    } else if (notice.kind == NoticeKind::kTimer) {
      then(notice, world, actions);
    }
  });
  ClusterSpec cluster = test_cluster(1, 2);
  cluster.hosts[0].usable = 0.3;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 60; ++i) {
    rows.push_back(row_at(3, 0, 1500, 1000));
  }
  return run_world(cluster, test_models(2), plane, rows);
}

TEST(Guests, FirstPositionsTakeNoMoreThanIsLent) {
  std::int64_t most = 0;
  const TestRun run = with_loan(500, [&](const Notice&, const World& world, Actions& actions) {
    most = std::max(most, guest_pages(world));
    EXPECT_EQ(world.replica(world.replicas_of(ModelId(0)).front())->lent_pages, 500);
    if (world.counts().arrived > world.counts().completed) {
      actions.timer(world.now() + std::chrono::seconds(1), 1);
    }
  });
  EXPECT_EQ(run.counts.completed, 60);
  EXPECT_GT(most, 250);
  EXPECT_LE(most, 500);
  EXPECT_GT(run.counts.bytes_kv_moved, 0);
  EXPECT_EQ(run.witness.count("weave m0 offload"), 1);
}

TEST(Guests, FirstPositionsMoveSoThatFewerArePreempted) {
  const auto nothing = [](const Notice&, const World&, Actions&) {};
  const TestRun with = with_loan(10'000, nothing);
  const TestRun without = with_loan(0, nothing);
  EXPECT_EQ(with.counts.completed, 60);
  EXPECT_EQ(without.counts.completed, 60);
  EXPECT_EQ(without.counts.bytes_kv_moved, 0);
  EXPECT_LT(with.counts.preemptions, without.counts.preemptions);
}

TEST(Guests, FirstPositionsAreRecalled) {
  const TestRun run = with_loan(10'000, [](const Notice&, const World& world, Actions& actions) {
    const ReplicaId hot = world.replicas_of(ModelId(0)).front();
    const std::int64_t preempted = world.counts().preemptions;
    EXPECT_GT(guest_pages(world), 0);
    actions.weave(hot, {.host = GpuId(1)}, Reason::kMakeRoom);
    EXPECT_FALSE(world.replica(hot)->guest_host.has_value());
    EXPECT_EQ(world.replica(hot)->lent_pages, 0);
    EXPECT_TRUE(world.gpu(GpuId(1)).hosts.empty());
    EXPECT_EQ(world.counts().preemptions, preempted);
  });
  EXPECT_EQ(run.counts.completed, 60);
  EXPECT_EQ(run.witness.count("recall m0 make_room"), 1);
}

TEST(Guests, FirstPositionsOfAReplicaThatDrainsAreRecalled) {
  const TestRun run = with_loan(10'000, [](const Notice&, const World& world, Actions& actions) {
    const ReplicaId hot = world.replicas_of(ModelId(0)).front();
    actions.drain(hot, Reason::kScaleDown);
    EXPECT_GT(guest_pages(world), 0);
    actions.weave(hot, {.host = GpuId(1)}, Reason::kMakeRoom);
    EXPECT_TRUE(world.gpu(GpuId(1)).hosts.empty());
  });
  EXPECT_EQ(run.counts.completed, 60);
}

TEST(Guests, FirstPositionsGoBackToALoadThatNeedsTheirPages) {
  const TestRun run = with_loan(10'000, [](const Notice&, const World& world, Actions& actions) {
    EXPECT_GT(guest_pages(world), 0);
    for (int i = 0; i < 2; ++i) {  // As large as what is free there, and more.
      actions.start({.model = ModelId(1), .stages = {{.gpus = {GpuId(1)}}}}, Reason::kMiss);
    }
  });
  EXPECT_EQ(run.counts.completed, 60);
  EXPECT_EQ(run.witness.count("recall m0 make_room"), 1);
}

}  // namespace
}  // namespace heddle::sim
