#include "sim/planes/weaver.h"

#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

/// Many long requests of model 0, few of model 1.
std::vector<TraceRow> hot_and_cold() {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 300; ++i) {
    rows.push_back(row_at(1 + 0.02 * i, i % 30 == 0 ? 1 : 0, 1500, 400));
  }
  return rows;
}

std::vector<ModelSpec> two_models() {
  std::vector<ModelSpec> models = test_models(2);
  models[0].max_sequences = 512;
  return models;
}

double mean_latency(const TestRun& run) {
  double sum = 0;
  for (const auto& [number, served] : run.witness.served) {
    sum += served.finished - served.arrival;
  }
  return sum / static_cast<double>(run.witness.served.size());
}

/// A GPU with little room for KV.
ClusterSpec small_gpus() {
  ClusterSpec cluster = test_cluster(1, 2);
  cluster.hosts[0].usable = 0.36;
  return cluster;
}

// The hot model is short of KV and the cold one has it: guests make all faster.
TEST(Weaver, AHotModelWithoutRoomForKvIsFasterWithGuests) {
  const TestRun with = run_policy("weaver", small_gpus(), two_models(), hot_and_cold());
  const TestRun without =
      run_policy("weaver", small_gpus(), two_models(), hot_and_cold(), {{"share", "0"}});
  EXPECT_EQ(with.counts.completed, 300);
  EXPECT_EQ(without.counts.completed, 300);
  EXPECT_EQ(with.witness.count("weave m0 offload"), 1);
  EXPECT_EQ(without.witness.count("weave m0 offload"), 0);
  EXPECT_LT(mean_latency(with), 0.9 * mean_latency(without));
}

double mean_tpot(const TestRun& run, const std::vector<TraceRow>& rows, std::uint64_t model) {
  double sum = 0;
  double count = 0;
  for (const auto& [number, served] : run.witness.served) {
    if (rows[number].model == ModelId(model)) {
      sum += (served.finished - served.first_token) / static_cast<double>(served.tokens - 1);
      ++count;
    }
  }
  return sum / count;
}

TEST(Weaver, GuestsSlowTheModelThatHostsThem) {
  const std::vector<TraceRow> rows = hot_and_cold();
  const TestRun with = run_policy("weaver", small_gpus(), two_models(), rows);
  const TestRun without = run_policy("weaver", small_gpus(), two_models(), rows, {{"share", "0"}});
  EXPECT_GT(mean_tpot(with, rows, 1), 1.05 * mean_tpot(without, rows, 1));
  EXPECT_LT(mean_tpot(with, rows, 1), 2 * mean_tpot(without, rows, 1));
}

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

TEST(Weaver, AChosenShareIsNoneWhileThereIsRoom) {
  std::vector<TraceRow> few = hot_and_cold();
  few.resize(20);
  const TestRun run =
      run_policy("weaver", test_cluster(1, 2), two_models(), few, {{"share", "-1"}});
  EXPECT_EQ(run.counts.completed, 20);
  EXPECT_EQ(run.witness.count("weave m0 offload"), 0);
}

}  // namespace
}  // namespace heddle::sim
