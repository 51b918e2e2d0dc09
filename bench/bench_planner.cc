// The planner's incremental tick at scale (goal: 10,000 models on 10,000 devices in under 100 ms):
// the moves worth making, one diff. And one cold start's choice.
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "policy/cold_start.h"
#include "policy/diff.h"
#include "policy/kv_moves.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kGiga = 1'000'000'000;

void BM_Tick(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  Rng rng(1);
  std::vector<KvModel> models;
  std::vector<KvDevice> devices;
  for (std::uint64_t i = 0; i < count; ++i) {
    models.push_back({.model = ModelId(i),
                      .demand = 1e15 / static_cast<double>(1 + rng.below(1'000'000)),
                      .bytes = 16 * kGiga,
                      .at = {DeviceId(rng.below(count))}});
    devices.push_back({.id = DeviceId(i), .host = HostId(i / 8), .bytes = 200 * kGiga});
  }
  NotBefore not_before;
  Instant now{};
  for (auto _ : state) {
    std::vector<Action> proposals;
    const auto moves =
        choose_kv_moves(models, devices, {.most = 2, .horizon = 300s, .bytes_per_second = 20e9});
    for (const KvMove& move : moves) {
      proposals.push_back(
          {.kind = ActionKind::kMigrate, .model = move.model, .devices = {move.from, move.to}});
    }
    benchmark::DoNotOptimize(make_diff(proposals, not_before, now));
    now += 5s;
  }
}
BENCHMARK(BM_Tick)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

/// On so many devices, eight to a host; a host has three fetches under way.
void BM_ColdStart(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  std::vector<Nic> nics(count / 8 + 1, Nic(2 * kGiga, NicRule::kEarliestDeadline));
  Rng rng(1);
  std::vector<StartHost> hosts;
  std::vector<StartDevice> devices;
  for (std::uint64_t h = 0; h < nics.size(); ++h) {
    for (std::uint64_t f = 0; f < 3; ++f) {
      nics[h].start({.id = FetchId(f),
                     .bytes = static_cast<std::int64_t>(1 + rng.below(5)) * kGiga,
                     .deadline = Instant{30s}});
    }
    hosts.push_back({.id = HostId(h), .nic = &nics[h], .pcie = 12e9});
    for (std::uint64_t d = 8 * h; d < 8 * h + 8; ++d) {
      devices.push_back({.id = DeviceId(d),
                         .host = HostId(h),
                         .free_bytes = static_cast<std::int64_t>(rng.below(30)) * kGiga});
    }
  }
  const StartModel model{.bytes = 13 * kGiga,
                         .kv_per_token = 500'000,
                         .prompt_tokens = 500,
                         .expected_tokens = 20,
                         .times = {.container = 1200ms,
                                   .context = 600ms,
                                   .libraries = 2800ms,
                                   .hop = 10ms,
                                   .prefill = 1s,
                                   .decode = 40ms}};
  const StartView view{.ttft_left = 7s, .tpot = 200ms, .hosts = hosts, .devices = devices};
  for (auto _ : state) {
    benchmark::DoNotOptimize(choose_cold_start(model, view, {}));
  }
}
BENCHMARK(BM_ColdStart)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle::policy
