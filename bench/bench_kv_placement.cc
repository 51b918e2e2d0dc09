// Placement by KV pressure at scale: a full plan (goal: 10,000 models on 10,000 devices in under 1
// s) and an incremental tick (goal: under 100 ms).
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "policy/kv_moves.h"
#include "policy/kv_pressure.h"
#include "sim/planes/kv_plan.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

struct World {
  std::vector<KvModel> models{};
  std::vector<KvDevice> devices{};
};

/// As many devices as models, eight to a host; Pareto demands; one model in ten over 2 or 4
/// devices.
World world(std::int64_t count) {
  constexpr std::int64_t kGiga = 1'000'000'000;
  constexpr std::int64_t kSizes[] = {3, 6, 15, 16, 28};
  Rng rng(1);
  World out;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    out.devices.push_back({.id = DeviceId(i), .host = HostId(i / 8), .bytes = 70 * kGiga});
    const double pareto = 1e15 / static_cast<double>(1 + rng.below(1'000'000));
    KvModel model{.model = ModelId(i), .demand = pareto, .bytes = kSizes[rng.below(5)] * kGiga};
    if (rng.below(10) == 0) {
      model.parts = rng.below(2) == 0 ? 2 : 4;
      model.bytes = 70 * kGiga;
    }
    out.models.push_back(model);
  }
  return out;
}

World settled(std::int64_t count) {
  World out = world(count);
  const sim::KvPlan plan = sim::plan_kv_placement(out.models, out.devices, {});
  for (const KvHome& home : plan.homes) {
    out.models[home.model.value()].at = home.devices;
  }
  return out;
}

void BM_FirstPlan(benchmark::State& state) {
  const World w = world(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::plan_kv_placement(w.models, w.devices, {}));
  }
}
BENCHMARK(BM_FirstPlan)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

/// Demand of one model in ten changed since.
void BM_NextPlan(benchmark::State& state) {
  World w = settled(state.range(0));
  Rng rng(2);
  for (KvModel& model : w.models) {
    model.demand *= rng.below(10) == 0 ? 3.0 : 1.0;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::plan_kv_placement(w.models, w.devices, {}));
  }
}
BENCHMARK(BM_NextPlan)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

void BM_Tick(benchmark::State& state) {
  World w = settled(state.range(0));
  Rng rng(2);
  for (KvModel& model : w.models) {
    model.demand *= rng.below(10) == 0 ? 3.0 : 1.0;
  }
  const KvMoveOptions options{.horizon = 300s, .bytes_per_second = 20e9};
  for (auto _ : state) {
    benchmark::DoNotOptimize(choose_kv_moves(w.models, w.devices, options));
  }
}
BENCHMARK(BM_Tick)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle::policy
