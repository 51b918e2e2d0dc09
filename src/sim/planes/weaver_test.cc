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
