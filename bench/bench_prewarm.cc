// The placement of a whole window and single launches, at 10,000 models on 10,000 devices.

#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "policy/prewarm.h"
#include "sim/planes/launch.h"

namespace heddle::policy {
namespace {

/// Servers of 8 devices of 80 GiB; models of 1, 2, 4 and 8 devices as 75, 12, 9 and 4 of 100.
struct Cluster {
  ReplicaMap map;
  std::vector<ModelDemand> models;
};

Cluster cluster_of(std::uint64_t devices, std::uint64_t models) {
  Rng rng(1);
  std::vector<MapDevice> all;
  for (std::uint64_t i = 0; i < devices; ++i) {
    all.push_back(
        {.id = DeviceId(i), .server = static_cast<std::int64_t>(i / 8), .free_pages = 38'000});
  }
  Cluster cluster{.map = ReplicaMap(all), .models = {}};
  for (std::uint64_t m = 0; m < models; ++m) {
    const std::uint64_t draw = rng.below(100);
    const std::int64_t tp = draw < 75 ? 1 : draw < 87 ? 2 : draw < 96 ? 4 : 8;
    const auto pages = 1000 * (1 + static_cast<std::int64_t>(rng.below(30)));
    const double load = static_cast<double>(rng.below(1000)) * 0.12;
    cluster.models.push_back({.model = ModelId(m),
                              .mean_load = load,
                              .peak_load = load * 2,
                              .devices = tp,
                              .pages_per_device = pages,
                              .load_time = std::chrono::microseconds(40) * pages});
  }
  return cluster;
}

/// Carries a plan out, as a window later it would have been.
void apply(Cluster& cluster, const std::vector<PrewarmDecision>& plan, std::uint64_t& next) {
  for (const PrewarmDecision& decision : plan) {
    if (decision.action == PrewarmAction::kEvict) {
      cluster.map.remove(decision.replica);
    } else if (decision.action == PrewarmAction::kLoad) {
      cluster.map.place({.id = ReplicaId(next++),
                         .model = decision.model,
                         .devices = decision.devices,
                         .pages = cluster.models[decision.model.value()].pages_per_device,
                         .worth = decision.worth});
    }
  }
}

/// An empty cluster: everything is to be placed.
void first_window(benchmark::State& state) {
  const auto devices = static_cast<std::uint64_t>(state.range(0));
  const Cluster cluster = cluster_of(devices, devices);
  std::size_t decisions = 0;
  for (auto _ : state) {
    const auto plan = plan_prewarm(cluster.map, cluster.models, {});
    decisions = plan.size();
    benchmark::DoNotOptimize(plan.data());
  }
  state.counters["decisions"] = static_cast<double>(decisions);
}

/// A full cluster whose models all have another load than before: keeps, evictions and loads.
void next_window(benchmark::State& state) {
  const auto devices = static_cast<std::uint64_t>(state.range(0));
  Cluster cluster = cluster_of(devices, devices);
  std::uint64_t next = 0;
  apply(cluster, plan_prewarm(cluster.map, cluster.models, {}), next);
  Rng rng(2);
  for (ModelDemand& model : cluster.models) {
    model.mean_load = static_cast<double>(rng.below(1000)) * 0.12;
    model.peak_load = model.mean_load * 2;
  }
  std::size_t evictions = 0;
  for (auto _ : state) {
    const auto plan = plan_prewarm(cluster.map, cluster.models, {});
    evictions = 0;
    for (const PrewarmDecision& decision : plan) {
      evictions += decision.action == PrewarmAction::kEvict ? 1 : 0;
    }
    benchmark::DoNotOptimize(plan.data());
  }
  state.counters["evictions"] = static_cast<double>(evictions);
}

/// A model without a replica is launched on a full cluster; every other one has one.
void launch(benchmark::State& state, std::uint64_t offset) {
  const auto devices = static_cast<std::uint64_t>(state.range(0));
  Cluster cluster = cluster_of(devices, devices);
  std::uint64_t next = 0;
  apply(cluster, plan_prewarm(cluster.map, cluster.models, {}), next);
  std::uint64_t model = 0;
  for (auto _ : state) {
    model = (model + 1) % devices;
    const ModelDemand& demand = cluster.models[model];
    const auto chosen = sim::choose_launch(cluster.map,
                                           {.model = ModelId(model + offset),
                                            .devices = demand.devices,
                                            .pages = demand.pages_per_device},
                                           sim::LaunchVariant::kLeastLost);
    benchmark::DoNotOptimize(&chosen);
  }
}

BENCHMARK(first_window)->RangeMultiplier(10)->Range(100, 10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(next_window)->RangeMultiplier(10)->Range(100, 10'000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(launch, resident, 0)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(launch, unknown, 1'000'000)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::policy
