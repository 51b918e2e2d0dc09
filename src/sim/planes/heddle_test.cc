#include "sim/planes/heddle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/test_world.h"

namespace heddle::sim {
namespace {

using testing::Contains;

constexpr double kActivate = 16.06e9 / 22.7e9;
constexpr double kAttach = 0.55;
constexpr double kUnmap = 7659 * 40e-6;

// Three models of 16 GB and their KV fit on the GPU, and come there at the start; the fourth is in
// host memory: it comes through all GPUs of the server when an idle one has been unmapped, is
// attached, and stays.
TEST(Heddle, AModelIsActivatedIntoThePoolAndStays) {
  ClusterSpec cluster = test_cluster(1, 1);
  cluster.hosts[0].usable = 0.8;
  const TestRun run =
      run_policy("heddle", cluster, test_models(4), {row_at(9, 3, 128, 8), row_at(300, 3, 128, 8)});
  EXPECT_NEAR(run.request(0).ttft(), kUnmap + kActivate + kAttach + prefill_seconds(128), 0.01);
  EXPECT_NEAR(run.request(1).ttft(), prefill_seconds(128), 1e-6);
  EXPECT_EQ(run.counts.starts, 4);
  EXPECT_EQ(run.counts.evictions, 1);
}

// Without an image in host memory: one server's network would be too slow for the objective.
TEST(Heddle, AColdStartUsesSeveralServers) {
  ClusterSpec cluster = test_cluster(4, 1);
  for (HostSpec& host : cluster.hosts) {
    host.links.nic = 1e9;
  }
  std::vector<ModelSpec> models = test_models(2);
  models[0].slo_ttft = std::chrono::seconds(11);
  const TestRun run =
      run_policy("heddle", cluster, models, {row_at(1, 0, 128, 2000)}, {}, Begin::kEmpty);
  EXPECT_EQ(run.counts.merges, 1);
  EXPECT_GT(run.counts.bytes_kv_moved, 0) << "to the worker that stays";
  EXPECT_LT(run.request(0).ttft(), 11);
  const TestRun alone = run_policy(
      "heddle", cluster, models, {row_at(1, 0, 128, 2000)}, {{"pipeline", "0"}}, Begin::kEmpty);
  EXPECT_EQ(alone.counts.merges, 0);
}

/// Where replicas were started.
class Starts final : public Observer {
 public:
  void acted(const World& /*world*/, const Act& act) override {
    counts[*act.gpu] += act.verb == "start" ? 1 : 0;
  }
  std::map<GpuId, int> counts{};
};

// Bin packing would put all the small ones on one GPU, where they slow each other.
TEST(Heddle, ModelsWithoutHistoryBeginSpreadOut) {
  std::vector<ModelSpec> models = test_models(8);
  for (ModelSpec& model : models) {
    model.shape = test_llama_1b();
  }
  models[0].shape = test_llama_8b();
  Starts starts;
  auto plane = make_plane("heddle", {});
  WorldOptions options;
  for (std::size_t i = 0; i < models.size(); ++i) {
    options.in_host_memory.emplace_back(i);
  }
  World world(test_cluster(1, 4), models, **plane, starts, options);
  ListSource source({row_at(0, 1, 8, 8)});
  world.run(source);
  EXPECT_EQ(starts.counts.size(), 4U);
  for (const auto& [gpu, count] : starts.counts) {
    EXPECT_LE(count, 3) << "GPU " << gpu.value();
  }
}

// More servers of a kind that the model does not fit do not hide the one that it fits.
TEST(Heddle, ServersThatTheModelDoesNotFitAreNotLookedAt) {
  for (const std::int64_t small : {4, 5, 12}) {
    ClusterSpec cluster = test_cluster(small, 4);
    for (HostSpec& host : cluster.hosts) {
      host.gpu.name = "small";
      host.gpu.memory = 16'000'000'000;
    }
    const ClusterSpec large = test_cluster(4, 1);
    cluster.hosts.insert(cluster.hosts.end(), large.hosts.begin(), large.hosts.end());
    const TestRun run = run_policy("heddle",
                                   cluster,
                                   test_models(3),
                                   {row_at(1, 0, 128, 8), row_at(2, 1, 128, 8), row_at(3, 2, 9, 9)},
                                   {},
                                   Begin::kEmpty);
    EXPECT_EQ(run.counts.completed, 3) << small << " small servers";
  }
}

// Five models on a GPU for four: the one that is worth least goes, which is not the one used most.
TEST(Heddle, TheLeastValuableModelMakesRoom) {
  std::vector<TraceRow> rows;
  for (int i = 0; i < 40; ++i) {
    rows.push_back(row_at(1 + 5.0 * i, 0, 128, 8));
  }
  for (std::uint64_t m = 1; m < 4; ++m) {
    rows.push_back(row_at(2 + static_cast<double>(m), m, 128, 8));
  }
  rows.push_back(row_at(150, 4, 128, 8));
  std::sort(rows.begin(), rows.end(), [](const TraceRow& a, const TraceRow& b) {
    return a.arrival < b.arrival;
  });
  const TestRun run = run_policy("heddle", test_cluster(1, 1), test_models(5), rows);
  EXPECT_EQ(run.counts.completed, 44);
  EXPECT_EQ(run.witness.count("evict m0 make_room"), 0);
  EXPECT_EQ(run.counts.evictions, 1);
}

// A busy model of two parts has GPUs of its own, and more of them as load asks.
TEST(Heddle, AModelOfTwoPartsScalesOut) {
  std::vector<ModelSpec> models = test_models(1);
  models[0].tp = 2;
  models[0].max_sequences = 8;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 100; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, 0, 512, 400));
  }
  const TestRun run = run_policy("heddle", test_cluster(1, 8), models, rows);
  EXPECT_EQ(run.counts.completed, 100);
  EXPECT_THAT(run.witness.acts, Contains("start m0 scale_up"));
}

// A rare model of two parts comes back into GPUs that others use: only what its pages need goes,
// though all are idle, and without load its instance stays.
TEST(Heddle, ARareModelOfTwoPartsSharesGpus) {
  std::vector<ModelSpec> models = test_models(9);
  models[8].tp = 2;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 8; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, static_cast<std::uint64_t>(i), 128, 8));
  }
  rows.push_back(row_at(60, 8, 128, 8));
  rows.push_back(row_at(120, 8, 128, 8));
  const TestRun run = run_policy("heddle", test_cluster(1, 2), models, rows);
  EXPECT_EQ(run.counts.completed, 10);
  EXPECT_LE(run.counts.evictions, 3) << "devices of its own would take eight";
  EXPECT_EQ(run.witness.count("drain m8 scale_down"), 0);
  EXPECT_LT(run.request(9).ttft(), 0.1) << "it is there still";
}

// A burst for one model, more than it can read in time: nobody else has to go for it.
TEST(Heddle, ABurstDoesNotDriveOthersOut) {
  std::vector<ModelSpec> models = test_models(4);
  for (ModelSpec& model : models) {
    model.slo_ttft = std::chrono::milliseconds(900);
  }
  std::vector<TraceRow> rows;
  for (std::uint64_t m = 1; m < 4; ++m) {
    for (int i = 0; i < 30; ++i) {
      rows.push_back(row_at(1 + 2.0 * i + 0.1 * static_cast<double>(m), m, 128, 8));
    }
  }
  for (int i = 0; i < 40; ++i) {
    rows.push_back(row_at(50 + 0.001 * i, 0, 1000, 8));
  }
  std::sort(rows.begin(), rows.end(), [](const TraceRow& a, const TraceRow& b) {
    return a.arrival < b.arrival;
  });
  const TestRun run = run_policy("heddle", test_cluster(1, 1), models, rows);
  EXPECT_EQ(run.counts.completed, 130);
  EXPECT_EQ(run.counts.evictions, 0);
}

// A model short of KV keeps some of it with a neighbour, so that all are done sooner.
TEST(Heddle, AModelShortOfKvHasGuestsElsewhere) {
  ClusterSpec cluster = test_cluster(1, 2);
  cluster.hosts[0].usable = 0.36;  // Room for one model and little KV.
  std::vector<ModelSpec> models = test_models(2);
  models[0].max_sequences = 512;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 600; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, i % 30 == 0 ? 1 : 0, 1500, 400));
  }
  const auto latency = [&](const TestRun& run) {
    double sum = 0;
    for (const auto& [number, served] : run.witness.served) {
      sum += served.finished - served.arrival;
    }
    return sum / 600;
  };
  const TestRun with = run_policy("heddle", cluster, models, rows);
  const TestRun without = run_policy("heddle", cluster, models, rows, {{"weave", "0"}});
  EXPECT_EQ(with.counts.completed, 600);
  EXPECT_GE(with.witness.count("weave m0 offload"), 1);
  EXPECT_EQ(without.witness.count("weave m0 offload"), 0);
  EXPECT_LT(latency(with), 0.9 * latency(without));
}

// Guests are recalled for requests that wait for memory on the host itself: nobody waits forever.
TEST(Heddle, AHostThatNeedsItsMemoryRecallsGuests) {
  ClusterSpec cluster = test_cluster(1, 2);
  cluster.hosts[0].usable = 0.36;
  std::vector<ModelSpec> models = test_models(2);
  models[0].max_sequences = models[1].max_sequences = 512;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 600; ++i) {
    rows.push_back(row_at(1 + 0.1 * i, i % 30 == 0 ? 1 : 0, 1500, 400));
    if (i >= 400) {
      rows.push_back(row_at(1 + 0.1 * i, 1, 1500, 400));
    }
  }
  const TestRun run = run_policy("heddle", cluster, models, rows);
  EXPECT_EQ(run.counts.completed, 800);
  EXPECT_GE(run.witness.count("recall m0 make_room"), 1);
}

// An external engine beside three models of ours, more than fits. It is resumed as a whole
// where an idle one went, and stays; where all are moved as wholes everybody waits longer.
TEST(Heddle, AForeignEngineIsResumedBesideOurs) {
  std::vector<ModelSpec> models = test_models(4);
  models[3].external = true;
  ClusterSpec cluster = test_cluster(1, 1);
  cluster.hosts[0].startup.swap_fixed = 2;
  cluster.hosts[0].startup.swap_per_byte = 0.1e-9;
  std::vector<TraceRow> rows;
  for (int i = 0; i < 40; ++i) {
    rows.push_back(row_at(1 + 10.0 * i, static_cast<std::uint64_t>(i % 4), 128, 8));
  }
  const TestRun run = run_policy("heddle", cluster, models, rows);
  EXPECT_EQ(run.counts.completed, 40);
  EXPECT_GE(run.witness.count("start m3 swap"), 1);
  const double swap_in = 2 + 0.1 * 16.06;
  EXPECT_GE(run.request(3).ttft(), swap_in);
  EXPECT_LT(run.request(3).ttft(), swap_in + 1);
  const TestRun wholes = run_policy("swapserve", cluster, models, rows);
  const auto waited = [](const TestRun& each) {
    double sum = 0;
    for (const auto& [number, served] : each.witness.served) {
      sum += served.ttft();
    }
    return sum;
  };
  EXPECT_LT(waited(run), 0.5 * waited(wholes));
}

}  // namespace
}  // namespace heddle::sim
