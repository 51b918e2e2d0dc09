#include "sim/planes/live.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/codec.h"
#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::Ne;

constexpr double kLoadSeconds = 16.06e9 / 22.7e9;  // Through all GPUs of the server.
constexpr double kAttachSeconds = 0.55;
constexpr double kUnmapSeconds = 7659 * 40e-6;

std::unique_ptr<LivePlane> live_plane(const std::map<std::string, std::string>& values = {}) {
  Flags flags(values);
  auto plane = std::make_unique<LivePlane>(flags);
  EXPECT_EQ(flags.problem(), "");
  return plane;
}

/// Bursts of `models` models, drawn from `seed`.
std::vector<TraceRow> live_bursts(std::uint64_t seed, std::uint64_t models, int count) {
  Rng rng(seed);
  std::vector<TraceRow> rows;
  double at = 1;
  for (int i = 0; i < count; ++i) {
    at += rng.below(5) == 0 ? 12.0 : 0.1 * static_cast<double>(rng.below(8));
    rows.push_back(row_at(at,
                          rng.below(models),
                          1 + static_cast<std::int64_t>(rng.below(3000)),
                          1 + static_cast<std::int64_t>(rng.below(400))));
  }
  return rows;
}

// ---- One GPU ----

TEST(Live, AMissIsALoadAndAHitIsNone) {
  const TestRun run = run_policy(
      "heddle", test_cluster(1, 1), test_models(2), {row_at(1, 0, 128, 8), row_at(9, 0, 128, 8)});
  EXPECT_NEAR(run.request(0).ttft(), kLoadSeconds + kAttachSeconds + prefill_seconds(128), 0.01);
  EXPECT_NEAR(run.request(1).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_EQ(run.counts.starts, 1);
  EXPECT_EQ(run.counts.completed, 2);
}

// Five models do not fit in 72 GB: one goes for the fifth. What is asked for every 20 seconds is
// worth more than what was asked for once, though that was used later; the order of last use would
// have it otherwise.
TEST(Live, TheVictimIsWhatIsWorthLeast) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 30; ++i) {
    rows.push_back(row_at(1 + 20.0 * i, 0, 128, 8));
  }
  for (const std::uint64_t once : {1ULL, 2ULL, 3ULL}) {
    rows.push_back(row_at(590 + static_cast<double>(once), once, 128, 8));
  }
  rows.push_back(row_at(600, 4, 128, 8));
  rows.push_back(row_at(602, 0, 128, 8));
  const auto victims = [&](const std::string& value) {
    const TestRun run = run_policy("heddle",
                                   test_cluster(1, 1),
                                   test_models(5),
                                   rows,
                                   {{"value", value}, {"prewarm", "0"}, {"window", "60"}});
    EXPECT_EQ(run.counts.completed, 35);
    std::vector<std::string> gone;
    for (const std::string& act : run.witness.acts) {
      if (act.starts_with("evict")) {
        gone.push_back(act);
      }
    }
    return gone;
  };
  EXPECT_THAT(victims("1"), ElementsAre(Ne("evict m0 make_room")));
  EXPECT_THAT(victims("0"), ElementsAre("evict m0 make_room", "evict m1 make_room"));
}

// Unmapping goes before the load, and the load begins as the last page comes free.
TEST(Live, ALoadWaitsForItsVictimToBeUnmapped) {
  const TestRun run = run_policy("heddle",
                                 test_cluster(1, 1),
                                 test_models(5),
                                 {row_at(1, 0, 128, 8),
                                  row_at(3, 1, 128, 8),
                                  row_at(5, 2, 128, 8),
                                  row_at(7, 3, 128, 8),
                                  row_at(40, 4, 128, 8)});
  EXPECT_EQ(run.counts.completed, 5);
  EXPECT_EQ(run.counts.evictions, 1);
  EXPECT_NEAR(run.request(4).ttft(),
              kUnmapSeconds + kLoadSeconds + kAttachSeconds + prefill_seconds(128),
              0.02);
}

TEST(Live, AModelThatWasIdleForItsTimeToLiveGoes) {
  const auto starts = [](const std::string& ttl) {
    const TestRun run =
        run_policy("heddle",
                   test_cluster(1, 1),
                   test_models(2),
                   {row_at(1, 0, 128, 8), row_at(9, 0, 128, 8), row_at(40, 0, 128, 8)},
                   {{"ttl", ttl}, {"prewarm", "0"}});
    EXPECT_EQ(run.counts.completed, 3);
    EXPECT_EQ(run.counts.evictions, run.counts.starts - 1) << "the last one stays: the run ends";
    return run.counts.starts;
  };
  EXPECT_EQ(starts("0"), 1);
  EXPECT_EQ(starts("20"), 2) << "it was idle for half a minute once";
  EXPECT_EQ(starts("4"), 3);
}

// A model comes each day at the same time, and goes for others between. On the third day its
// weights are there before its request, which finds them.
TEST(Live, WhatIsForeseenIsThereBeforeItIsAskedFor) {
  constexpr int kDays = 4;
  std::vector<TraceRow> rows;
  for (int day = 0; day < kDays; ++day) {
    rows.push_back(row_at(600.0 * day + 305, 4, 128, 8));
    for (int i = 0; i < 10; ++i) {
      for (const std::uint64_t other : {0ULL, 1ULL, 2ULL, 3ULL}) {
        const double at = 600.0 * day + 20.0 * i + static_cast<double>(other) + 1;
        rows.push_back(row_at(at, other, 128, 8));
      }
    }
  }
  std::ranges::sort(rows, {}, [](const TraceRow& row) { return row.arrival; });
  const auto waited = [&](const std::string& prewarm) {
    const TestRun run = run_policy("heddle",
                                   test_cluster(1, 1),
                                   test_models(5),
                                   rows,
                                   {{"window", "60"}, {"day", "600"}, {"prewarm", prewarm}});
    EXPECT_EQ(run.counts.completed, static_cast<std::int64_t>(rows.size()));
    EXPECT_EQ(run.counts.prewarms > 0, prewarm == "1");
    return run.request(rows.size() / kDays * kDays - 1).ttft();
  };
  EXPECT_GT(waited("0"), kLoadSeconds);
  EXPECT_LT(waited("1"), 0.1);
}

// More prompts at once than can be in time: those of the late list end, too.
TEST(Live, AnOverloadedGpuServesAll) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 120; ++i) {
    rows.push_back(row_at(1 + 0.01 * i, static_cast<std::uint64_t>(i % 3), 2000, 50));
  }
  const TestRun run = run_policy("heddle", test_cluster(1, 1), test_models(3), rows);
  EXPECT_EQ(run.counts.completed, 120);
}

// ---- Memory ----

// Of two idle models beside one that wants memory for its requests, at least one gives way.
TEST(Live, IdleModelsGiveTheirMemoryToRequests) {
  std::vector<TraceRow> rows{row_at(1, 1, 128, 8), row_at(3, 2, 128, 8)};
  for (int i = 0; i < 200; ++i) {
    rows.push_back(row_at(10 + 0.05 * i, 0, 3000, 300));
  }
  ClusterSpec cluster = test_cluster(1, 1);
  const TestRun run = run_policy("heddle", cluster, test_models(3), rows);
  EXPECT_EQ(run.counts.completed, 202);
  EXPECT_GE(run.counts.evictions, 1);
  EXPECT_EQ(run.counts.starts, 3);
}

// A model short of KV keeps some of it with a neighbour, where that is allowed, so that all are
// done sooner. What the neighbour comes to want itself it gets back.
TEST(Live, AModelShortOfKvHasGuestsElsewhere) {
  ClusterSpec cluster = test_cluster(1, 2);
  cluster.hosts[0].usable = 0.36;  // Room for one model and little KV.
  std::vector<ModelSpec> models = test_models(2);
  models[0].max_sequences = models[1].max_sequences = 512;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 600; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, i % 30 == 0 ? 1 : 0, 1500, 400));
    if (i >= 500) {
      rows.push_back(row_at(1 + 0.1 * i, 1, 1500, 400));
    }
  }
  const auto latency = [](const TestRun& run) {
    double sum = 0;
    for (const auto& [number, served] : run.witness.served) {
      sum += served.finished - served.arrival;
    }
    return sum / 700;
  };
  const TestRun with = run_policy("heddle", cluster, models, rows, {{"weave", "1"}});
  const TestRun without = run_policy("heddle", cluster, models, rows);
  EXPECT_EQ(with.counts.completed, 700);
  EXPECT_EQ(without.counts.completed, 700);
  EXPECT_GE(with.witness.count("weave m0 offload"), 1);
  EXPECT_GE(with.witness.count("recall m0 make_room"), 1);
  EXPECT_EQ(without.witness.count("weave m0 offload"), 0);
  EXPECT_LT(latency(with), 0.9 * latency(without));
}

// ---- Several GPUs ----

// One GPU's load is more than it should bear: the model gets another.
TEST(Live, AModelWithMuchLoadGetsAnotherGpu) {
  std::vector<ModelSpec> models = test_models(1);
  models[0].max_sequences = 8;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 400; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, 0, 500, 200));
  }
  const auto starts = [&](const std::string& replicas) {
    const TestRun run =
        run_policy("heddle", test_cluster(1, 2), models, rows, {{"replicas", replicas}});
    EXPECT_EQ(run.counts.completed, 400);
    return run.counts.starts;
  };
  EXPECT_EQ(starts("1"), 2);
  EXPECT_EQ(starts("0"), 1);
}

// A GPU fails under a request: it goes on elsewhere, after the load that this takes.
TEST(Live, TheRequestsOfADeadGpuAreServedElsewhere) {
  const auto plane = live_plane();
  const TestRun run = run_world(
      test_cluster(1, 2),
      test_models(2),
      *plane,
      {row_at(1, 0, 128, 2000), row_at(1, 1, 128, 2000), row_at(60, 0, 128, 8)},
      [](World& world) {
        world.inject(Instant(5s), World::Fault::kGpu, 0, 0);
        world.repair(Instant(40s), World::Fault::kGpu, 0, 0);
      },
      Begin::kWarm);
  EXPECT_EQ(run.counts.completed, 3);
  EXPECT_GE(run.counts.resubmissions, 1);
  EXPECT_LT(run.request(0).finished, 60);
}

// The same of a worker that dies by itself, of a host, and of all of it at random.
TEST(Live, WhateverDiesEveryRequestEnds) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto plane = live_plane({{"weave", seed % 3 == 0 ? "1" : "0"}});
    std::vector<ModelSpec> models = test_models(5);
    models[4].tp = 2;
    ClusterSpec cluster = test_cluster(2, 2);
    cluster.hosts[0].usable = cluster.hosts[1].usable = seed % 4 == 0 ? 0.36 : 0.9;
    const TestRun run = run_world(
        cluster,
        models,
        *plane,
        live_bursts(seed, 5, 80),
        [&](World& world) {
          for (int i = 0; i < 6; ++i) {
            const Instant at(from_seconds(2 + static_cast<double>(rng.below(150))));
            const auto fault = std::array{
                World::Fault::kGpu, World::Fault::kHost, World::Fault::kWorker}[rng.below(3)];
            const std::uint64_t target = rng.below(fault == World::Fault::kHost ? 2 : 4);
            world.inject(at, fault, target, 0);
            world.repair(
                at + from_seconds(1 + static_cast<double>(rng.below(20))), fault, target, 0);
          }
        },
        seed % 2 == 0 ? Begin::kWarm : Begin::kEmpty);
    EXPECT_EQ(run.counts.completed + run.counts.refused, 80);
    EXPECT_GE(run.counts.completed, 70);
    EXPECT_EQ(run.end.kind, RunEnd::Kind::kDone);
  }
}

// ---- Hosts ----

// Weights that no host has come over the network; the next time the host has them in memory.
TEST(Live, WhatWasFetchedStaysInHostMemory) {
  const TestRun run = run_policy("heddle",
                                 test_cluster(1, 1),
                                 test_models(5),
                                 {row_at(1, 0, 128, 8),
                                  row_at(10, 1, 128, 8),
                                  row_at(20, 2, 128, 8),
                                  row_at(30, 3, 128, 8),
                                  row_at(40, 4, 128, 8),
                                  row_at(50, 0, 128, 8)},
                                 {{"value", "0"}},
                                 Begin::kEmpty);
  EXPECT_EQ(run.counts.completed, 6);
  EXPECT_NEAR(run.request(0).ttft(), 16.06e9 / 10e9 + kAttachSeconds, 0.05);
  EXPECT_LT(run.request(5).ttft(), kUnmapSeconds + kLoadSeconds + kAttachSeconds + 0.1);
  EXPECT_NEAR(run.counts.bytes_fetched, 5 * 16.06e9, 1e9);
}

// ---- Groups ----

TestRun run_with_a_group(const std::string& shares) {
  std::vector<ModelSpec> models = test_models(3);
  models[2].tp = 2;
  return run_policy("heddle",
                    test_cluster(1, 2),
                    models,
                    {row_at(1, 0, 128, 8),
                     row_at(1, 1, 128, 8),
                     row_at(10, 2, 128, 8),
                     row_at(20, 2, 128, 8),
                     row_at(30, 0, 128, 8)},
                    {{"shares", shares}});
}

// What lies on the GPUs of a sharded model stays where there is memory for all, and it as well.
TEST(Live, AShardedModelComesBesideOthers) {
  const TestRun run = run_with_a_group("1");
  EXPECT_EQ(run.counts.completed, 5);
  EXPECT_EQ(run.counts.evictions, 0);
  EXPECT_LT(run.request(4).ttft(), 0.1) << "it found its model there";
}

// Else it has its GPUs to itself: the models that lie there go, and come back after it.
TEST(Live, AShardedModelHasItsGpusToItself) {
  const TestRun run = run_with_a_group("0");
  EXPECT_EQ(run.counts.completed, 5);
  EXPECT_EQ(run.witness.count("evict m2 make_room"), 1);
  EXPECT_GE(run.witness.count("evict m0 make_room") + run.witness.count("evict m1 make_room"), 1);
  EXPECT_LT(run.request(3).ttft(), 0.1);
}

// ---- Cold starts in stages ----

// No host has the weights, and one network would be too slow for the objective: several hosts
// fetch parts of them. Then the whole comes to one of them.
TEST(Live, AColdStartUsesSeveralHosts) {
  ClusterSpec cluster = test_cluster(4, 1);
  for (HostSpec& host : cluster.hosts) {
    host.links.nic = 1e9;
  }
  std::vector<ModelSpec> models = test_models(1);
  models[0].slo_ttft = 8s;
  const std::vector<TraceRow> rows{row_at(1, 0, 128, 200), row_at(60, 0, 128, 8)};
  const auto first = [&](const std::string& stages) {
    const TestRun run =
        run_policy("heddle", cluster, models, rows, {{"stages", stages}}, Begin::kEmpty);
    EXPECT_EQ(run.counts.completed, 2);
    EXPECT_LT(run.request(1).ttft(), 0.1);
    return run.request(0).ttft();
  };
  EXPECT_GT(first("1"), 16);
  EXPECT_LT(first("4"), 9);
}

// ---- The manager ----

// What the plane says to the manager, said to another, gives the same commands: nothing but those
// events decides.
TEST(Live, AnotherManagerDecidesTheSame) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto plane = live_plane({{"window", "30"}, {"day", "120"}});
    std::string log;
    plane->listen([&](Instant at, const auto& event, const auto& commands) {
      log += core::log_entry(at, event, commands);
    });
    std::vector<ModelSpec> models = test_models(6);
    models[5].tp = 2;
    const TestRun run = run_world(
        test_cluster(2, 2),
        models,
        *plane,
        live_bursts(seed, 6, 100),
        [](World& world) { world.inject(Instant(20s), World::Fault::kWorker, 1, 0); },
        seed % 2 == 0 ? Begin::kWarm : Begin::kEmpty);
    EXPECT_EQ(run.counts.completed, 100);
    core::ManagerCore other;
    const Result<std::int64_t> replayed = core::replay(other, log);
    ASSERT_TRUE(replayed) << replayed.error().message;
    EXPECT_GT(*replayed, 500);
    other.check_invariants();
  }
}

TEST(Live, TwoRunsAreEqual) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<TraceRow> rows = live_bursts(seed, 6, 100);
    const TestRun one = run_policy("heddle", test_cluster(2, 2), test_models(6), rows);
    const TestRun two = run_policy("heddle", test_cluster(2, 2), test_models(6), rows);
    EXPECT_EQ(one.digest, two.digest) << seed;
    EXPECT_EQ(one.witness.acts, two.witness.acts) << seed;
    EXPECT_EQ(one.counts.completed, 100) << seed;
  }
}

// ---- External engines ----

/// `engines` of the models are engines, from the first on.
std::vector<ModelSpec> models_with_engines(std::size_t engines, std::size_t models) {
  std::vector<ModelSpec> all = test_models(models);
  for (std::size_t i = 0; i < engines; ++i) {
    all[i].external = true;
  }
  return all;
}

// Two engines of 40 GB of KV each take turns on one GPU. The first comes back from host memory at
// once, each next one when the other was saved there and unmapped.
TEST(Live, EnginesAreSuspendedToHostMemoryAndComeBack) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(row_at(1 + 60.0 * i, static_cast<std::uint64_t>(i % 2), 128, 8));
  }
  const TestRun run = run_policy("heddle",
                                 test_cluster(1, 1),
                                 models_with_engines(2, 2),
                                 rows,
                                 {{"kv_gb", "40"}, {"prewarm", "0"}});
  EXPECT_EQ(run.counts.completed, 6);
  EXPECT_EQ(run.counts.starts, 6);
  EXPECT_EQ(run.counts.evictions, 5);
  EXPECT_EQ(run.witness.count("start m0 swap"), 3);
  const double in = 0.235 + 16.06e9 * 0.143e-9;
  EXPECT_NEAR(run.request(0).ttft(), in + prefill_seconds(128), 0.01);
  for (const std::uint64_t i : {1U, 2U, 3U, 4U, 5U}) {
    EXPECT_NEAR(run.request(i).ttft(), in / 1.2 + kUnmapSeconds + in + prefill_seconds(128), 0.02);
  }
}

TEST(Live, AnEngineThatIsForeseenIsBackBeforeItIsAskedFor) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 40; ++i) {
    rows.push_back(row_at(30 + 120.0 * i, static_cast<std::uint64_t>(i % 2), 128, 8));
  }
  const auto late = [&](const std::string& prewarm) {
    const TestRun run =
        run_policy("heddle",
                   test_cluster(1, 1),
                   models_with_engines(2, 2),
                   rows,
                   {{"kv_gb", "40"}, {"prewarm", prewarm}, {"window", "60"}, {"day", "240"}});
    EXPECT_EQ(run.counts.completed, 40);
    int slow = 0;
    for (std::uint64_t i = 20; i < 40; ++i) {
      slow += run.request(i).ttft() > 2 * prefill_seconds(128) ? 1 : 0;
    }
    return slow;
  };
  EXPECT_EQ(late("0"), 20);
  EXPECT_EQ(late("1"), 0);
}

// What an engine answers when another needs its memory goes on once it is back.
TEST(Live, ABusyEngineIsFrozenAndGoesOn) {
  const TestRun run = run_policy("heddle",
                                 test_cluster(1, 1),
                                 models_with_engines(2, 2),
                                 {row_at(1, 0, 128, 6000), row_at(20, 1, 128, 8)},
                                 {{"kv_gb", "40"}, {"prewarm", "0"}});
  EXPECT_EQ(run.counts.completed, 2);
  EXPECT_EQ(run.request(0).tokens, 6000);
  EXPECT_GT(run.request(0).finished, run.request(1).finished);
}

// KV of an engine is its own: the model beside it never has it, however much it could use.
TEST(Live, EnginesAndModelsShareGpusAndEachRequestIsAnswered) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<TraceRow> rows = live_bursts(seed, 6, 100);
    const std::vector<ModelSpec> models = models_with_engines(seed % 2 == 0 ? 2 : 4, 6);
    const std::map<std::string, std::string> flags{{"kv_gb", "24"}, {"window", "20"}};
    const TestRun one = run_policy("heddle", test_cluster(1, 2), models, rows, flags);
    const TestRun two = run_policy("heddle", test_cluster(1, 2), models, rows, flags);
    EXPECT_EQ(one.counts.completed, 100);
    EXPECT_EQ(one.digest, two.digest);
  }
}

TEST(Live, AnEngineOnSeveralGpusComesAsOne) {
  std::vector<ModelSpec> models = models_with_engines(1, 2);
  models[0].tp = 2;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(row_at(1 + 60.0 * i, static_cast<std::uint64_t>(i % 2), 128, 8));
  }
  const TestRun run =
      run_policy("heddle", test_cluster(1, 2), models, rows, {{"kv_gb", "100"}, {"prewarm", "0"}});
  EXPECT_EQ(run.counts.completed, 6);
}

TEST(Live, AnEngineWhoseGpuFailsStartsAgain) {
  Flags flags({{"prewarm", "0"}});
  LivePlane plane(flags);
  const TestRun run = run_world(test_cluster(1, 1),
                                models_with_engines(1, 1),
                                plane,
                                {row_at(1, 0, 128, 3000), row_at(90, 0, 128, 8)},
                                [](World& world) {
                                  world.inject(Instant(20s), World::Fault::kGpu, 0, 0);
                                  world.repair(Instant(25s), World::Fault::kGpu, 0, 0);
                                });
  EXPECT_EQ(run.counts.completed, 2);
  EXPECT_EQ(run.counts.starts, 2);
}

}  // namespace
}  // namespace heddle::sim
