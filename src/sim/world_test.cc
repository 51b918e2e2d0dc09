#include "sim/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::Contains;
using testing::ElementsAre;

constexpr double kWeights = 16.06e9;  // Of Llama 3 8B, in bytes.

/// Loads model 0 on GPU 0 from the store at once, and sends it everything.
void one_instance(const Notice& notice, const World& world, Actions& actions) {
  if (notice.kind == NoticeKind::kStart) {
    actions.start(
        {.model = ModelId(0), .stages = {{.gpus = {GpuId(0)}}}, .source = WeightSource::kRemote},
        Reason::kMiss);
    return;
  }
  for (std::size_t i = 0; i < 8; ++i) {
    const auto& replicas = world.replicas_of(ModelId(0));
    if (notice.kind == NoticeKind::kArrival && !replicas.empty() &&
        world.replica(replicas[0])->serves()) {
      actions.dispatch(notice.request, replicas[0], Reason::kRunning);
      return;
    }
  }
}

TEST(World, ALoadTakesAsLongAsItsNarrowestLink) {
  TestPlane plane([](const Notice& notice, const World& world, Actions& actions) {
    one_instance(notice, world, actions);
    if (notice.kind == NoticeKind::kServing) {
      // 16.06 GB through the NIC at 10 GB/s; PCIe, at 50, streams beside it.
      EXPECT_NEAR(to_seconds(world.now().time_since_epoch()), kWeights / 10e9, 1e-3);
    }
  });
  const TestRun run = run_world(test_cluster(1, 1), test_models(1), plane, {row_at(3, 0, 128, 2)});
  EXPECT_EQ(run.counts.completed, 1);
  EXPECT_NEAR(run.request(0).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_NEAR(run.counts.bytes_fetched, kWeights, 1e7);
}

TEST(World, TwoLoadsShareTheNicOfTheirServer) {
  TestPlane plane([](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      for (std::uint64_t gpu = 0; gpu < 2; ++gpu) {
        actions.start({.model = ModelId(gpu),
                       .stages = {{.gpus = {GpuId(gpu)}}},
                       .source = WeightSource::kRemote},
                      Reason::kMiss);
      }
    } else if (notice.kind == NoticeKind::kServing) {
      EXPECT_NEAR(to_seconds(world.now().time_since_epoch()), 2 * kWeights / 10e9, 1e-2);
    } else if (notice.kind == NoticeKind::kArrival) {
      actions.reject(notice.request, Reason::kStatic);
    }
  });
  const TestRun run = run_world(test_cluster(1, 2), test_models(2), plane, {row_at(9, 0, 1, 1)});
  EXPECT_EQ(run.counts.refused, 1);
}

TEST(World, WhatIsNeverDispatchedIsNeverServed) {
  TestPlane plane([](const Notice&, const World&, Actions&) {});
  const TestRun run = run_world(test_cluster(1, 1), test_models(1), plane, {row_at(1, 0, 8, 8)});
  EXPECT_EQ(run.counts.unserved, 1);
  EXPECT_EQ(run.request(0).finished, -1);
}

TEST(World, EndsWhenNothingHappensAndSaysWhoWaitsForWhat) {
  TestPlane plane([](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart || notice.kind == NoticeKind::kTimer) {
      actions.timer(world.now() + std::chrono::seconds(1), 0);  // It has a clock, and does nothing.
    }
  });
  const TestRun run = run_world(test_cluster(1, 1),
                                test_models(2),
                                plane,
                                {row_at(1, 1, 8, 8), row_at(1, 0, 8, 8), row_at(2, 1, 8, 8)});
  EXPECT_EQ(run.end.kind, RunEnd::Kind::kNothingHappens);
  EXPECT_TRUE(run.end.stuck());
  EXPECT_LT(run.end.at, Instant(std::chrono::minutes(30)));
  ASSERT_EQ(run.end.unserved.size(), 2U);
  EXPECT_EQ(run.end.unserved[1].model, ModelId(1));
  EXPECT_EQ(run.end.unserved[1].requests, 2);
  EXPECT_EQ(run.end.unserved[1].first, RequestId(0));
  EXPECT_THAT(run.end.unserved[0].why, testing::HasSubstr("no instance of it, with 1 empty GPUs"));
}

TEST(World, EndsWhenAPlaneTriesTheImpossibleWithoutEnd) {
  ClusterSpec cluster = test_cluster(1, 1);
  cluster.hosts[0].gpu.memory = 8'000'000'000;
  TestPlane plane([](const Notice& notice, const World& /*world*/, Actions& actions) {
    if (notice.kind == NoticeKind::kArrival || notice.kind == NoticeKind::kGone) {
      actions.start({.model = ModelId(0), .stages = {{.gpus = {GpuId(0)}}}}, Reason::kMiss);
    }
  });
  const TestRun run = run_world(cluster, test_models(1), plane, {row_at(1, 0, 8, 8)});
  EXPECT_EQ(run.end.kind, RunEnd::Kind::kGoesRoundInRings);
  ASSERT_EQ(run.end.unserved.size(), 1U);
  EXPECT_THAT(run.end.unserved[0].why, testing::HasSubstr("fit no GPU"));
}

// A clock that ticks twice a second makes 170,000 events of a day without requests.
TEST(World, ALongPauseIsNotAnEnd) {
  TestPlane plane([](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart || notice.kind == NoticeKind::kTimer) {
      actions.timer(world.now() + std::chrono::milliseconds(500), 0);
    } else if (notice.kind == NoticeKind::kArrival && notice.request == LiveId(0)) {
      actions.reject(notice.request, Reason::kStatic);
    }
  });
  Witness witness;
  World world(test_cluster(1, 1), test_models(1), plane, witness, {});
  ListSource source({row_at(1, 0, 8, 8), row_at(86'400, 0, 8, 8)});
  world.run(source);
  EXPECT_EQ(world.counts().refused, 2);
  EXPECT_EQ(world.end().kind, RunEnd::Kind::kDone);
}

TEST(World, BeginsWithTheImagesThatFitHostMemory) {
  ClusterSpec cluster = test_cluster(2, 1);
  cluster.hosts[1].cache_bytes = 20'000'000'000;
  TestPlane plane([](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kStart) {
      EXPECT_TRUE(world.cached(HostId(0), ModelId(0)) && world.cached(HostId(0), ModelId(1)));
      EXPECT_TRUE(world.cached(HostId(1), ModelId(1)));
      EXPECT_FALSE(world.cached(HostId(1), ModelId(0)));
    } else if (notice.kind == NoticeKind::kArrival) {
      actions.reject(notice.request, Reason::kStatic);
    }
  });
  Witness witness;
  World world(
      cluster, test_models(2), plane, witness, {.in_host_memory = {ModelId(1), ModelId(0)}});
  ListSource source({row_at(0, 0, 1, 1)});
  world.run(source);
}

TEST(World, AGpuThatFailsGivesItsRequestsBack) {
  std::int64_t again = 0;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    again += notice.kind == NoticeKind::kArrival && notice.tag == 1 ? 1 : 0;
    one_instance(notice, world, actions);
  });
  const TestRun run = run_world(
      test_cluster(1, 1), test_models(1), plane, {row_at(3, 0, 128, 2000)}, [](World& world) {
        world.inject(
            Instant(std::chrono::seconds(4)), World::Fault::kGpu, /*target=*/0, /*factor=*/0);
      });
  EXPECT_EQ(again, 1);
  EXPECT_EQ(run.counts.resubmissions, 1);
  EXPECT_EQ(run.counts.unserved, 1);  // The plane does not start another.
  EXPECT_GT(run.request(0).tokens, 10);
  EXPECT_THAT(run.witness.acts, ElementsAre("start m0 miss", "lost m0 fault", "requeue m0 fault"));
}

TEST(World, ASlowNicDelaysALoad) {
  double ready = 0;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    one_instance(notice, world, actions);
    if (notice.kind == NoticeKind::kServing) {
      ready = to_seconds(world.now().time_since_epoch());
    }
  });
  run_world(test_cluster(1, 1), test_models(1), plane, {row_at(30, 0, 8, 1)}, [](World& world) {
    world.inject(Instant{}, World::Fault::kNic, 0, 0.1);
    world.repair(Instant(std::chrono::seconds(10)), World::Fault::kNic, 0, 0.1);
  });
  EXPECT_NEAR(ready, 10 + (kWeights - 10e9) / 10e9, 1e-3);  // 10 s at 1 GB/s first.
}

// Down from 4 to 10 s and, with its server, from 6 to 20 s: it is back at 20 s.
TEST(World, AGpuIsUpWhenAllItsFaultsAreMended) {
  std::vector<double> up;
  TestPlane plane([&](const Notice& notice, const World& world, Actions&) {
    if (notice.kind == NoticeKind::kGpuUp) {
      up.push_back(to_seconds(world.now().time_since_epoch()));
    }
  });
  run_world(test_cluster(1, 1), test_models(1), plane, {row_at(3, 0, 8, 8)}, [](World& world) {
    const auto at = [](std::int64_t seconds) { return Instant(std::chrono::seconds(seconds)); };
    world.inject(at(4), World::Fault::kGpu, 0, 0);
    world.repair(at(10), World::Fault::kGpu, 0, 0);
    world.inject(at(6), World::Fault::kHost, 0, 0);
    world.repair(at(20), World::Fault::kHost, 0, 0);
  });
  EXPECT_THAT(up, ElementsAre(20.0));
}

TEST(World, EvictionFreesPagesAndADrainedReplicaStaysWarm) {
  std::vector<ReplicaPhase> seen;
  TestPlane plane([&](const Notice& notice, const World& world, Actions& actions) {
    one_instance(notice, world, actions);
    if (notice.kind == NoticeKind::kFinished) {
      actions.drain(notice.replica, Reason::kScaleDown);
    } else if (notice.kind == NoticeKind::kDrained) {
      seen.push_back(world.replica(notice.replica)->state);
      actions.evict(notice.replica, Reason::kIdle, std::nullopt);
    } else if (notice.kind == NoticeKind::kGone) {
      EXPECT_EQ(world.free_pages(GpuId(0)), world.gpu(GpuId(0)).pages);
    }
  });
  const TestRun run = run_world(
      test_cluster(1, 1), test_models(1), plane, {row_at(3, 0, 8, 8), row_at(30, 0, 8, 8)});
  EXPECT_THAT(seen, ElementsAre(ReplicaPhase::kWarm));
  EXPECT_THAT(run.witness.acts, Contains("evict m0 idle"));
  EXPECT_EQ(run.counts.completed, 1);
  EXPECT_LT(run.gpu_seconds, 5);
}

/// Two models on one GPU, each in an engine of its own, or both in one.
class TwoModelsPlane final : public ControlPlane {
 public:
  explicit TwoModelsPlane(ComputeSharing sharing) : sharing_(sharing) {}
  [[nodiscard]] ComputeSharing compute_sharing() const override { return sharing_; }
  void decide(const Notice& notice, const World& world, Actions& actions) override {
    if (notice.kind == NoticeKind::kStart) {
      for (std::uint64_t model = 0; model < 2; ++model) {
        actions.start({.model = ModelId(model),
                       .stages = {{.gpus = {GpuId(0)}}},
                       .source = WeightSource::kRemote},
                      Reason::kMiss);
      }
    } else if (notice.kind == NoticeKind::kArrival) {
      actions.dispatch(notice.request, world.replicas_of(notice.model)[0], Reason::kRunning);
    }
  }

 private:
  ComputeSharing sharing_;
};

// A step beside an equal one takes 1 + co_running times its own GPU time (PAPERS 4.7: 2.8 times
// where the GPU changes between processes); models of one engine take turns, whatever that is.
TEST(World, EnginesOfTheirOwnSlowEachOtherByTheGpusFactor) {
  const auto decoding = [](ComputeSharing sharing, double co_running) {
    TwoModelsPlane plane(sharing);
    ClusterSpec cluster = test_cluster(1, 1);
    cluster.hosts[0].gpu.co_running = co_running;
    const TestRun run =
        run_world(cluster, test_models(2), plane, {row_at(9, 0, 16, 100), row_at(9, 1, 16, 100)});
    EXPECT_EQ(run.counts.completed, 2);
    return run.request(0).finished - run.request(0).first_token;
  };
  const double adds_up = decoding(ComputeSharing::kAddUp, 1);
  EXPECT_NEAR(decoding(ComputeSharing::kAddUp, 1.8), 1.4 * adds_up, 0.03 * adds_up);
  EXPECT_EQ(decoding(ComputeSharing::kTurns, 1.8), adds_up);
}

TEST(World, APipelineBecomesOneWorkerAndKeepsItsRequests) {
  TestPlane plane([](const Notice& notice, const World& world, Actions& actions) {
    if (notice.kind == NoticeKind::kArrival && world.replicas_of(ModelId(0)).empty()) {
      actions.start({.model = ModelId(0),
                     .stages = {{.gpus = {GpuId(0)}, .weights = 0.5, .reserve_all = true},
                                {.gpus = {GpuId(1)}, .weights = 0.5}},
                     .source = WeightSource::kRemote},
                    Reason::kGroup);
    } else if (notice.kind == NoticeKind::kServing) {
      actions.dispatch(LiveId(0), notice.replica, Reason::kRunning);
    } else if (notice.kind == NoticeKind::kFirstToken) {
      actions.merge(notice.replica, 0, /*split=*/false, Reason::kConsolidate);
    } else if (notice.kind == NoticeKind::kMerged) {
      EXPECT_EQ(world.replica(notice.replica)->stages.size(), 1U);
      EXPECT_EQ(world.free_pages(GpuId(1)), world.gpu(GpuId(1)).pages);
    }
  });
  const TestRun run =
      run_world(test_cluster(2, 1), test_models(1), plane, {row_at(0, 0, 128, 1000)});
  EXPECT_EQ(run.counts.merges, 1);
  EXPECT_EQ(run.counts.completed, 1);
  // Half of the weights on each of two NICs.
  EXPECT_NEAR(run.request(0).ttft(), kWeights / 2 / 10e9, 0.05);
}

}  // namespace
}  // namespace heddle::sim
