// One pass of the device queue (policy/device_queue) over n requests, beside a plain sort of the
// same data: BM_Sort is the unit, the counter `per_sort` of BM_PlanQueue the ratio. Goal: 10,000
// requests in under 2 ms.
#include <algorithm>
#include <chrono>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "policy/device_queue.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

std::vector<QueuedRequest> overload(std::int64_t count) {
  Rng rng(1);
  std::vector<QueuedRequest> requests;
  for (std::int64_t i = 0; i < count; ++i) {
    requests.push_back({.id = RequestId(static_cast<std::uint64_t>(i)),
                        .model = ModelId(rng.below(100)),
                        .deadline = Instant{100s + 1us * rng.below(1'000'000)},
                        .prefill = 1us * (1 + rng.below(400)),
                        .kv_pages = static_cast<std::int64_t>(rng.below(8))});
  }
  return requests;
}

void sort_once(std::vector<QueuedRequest>& requests) {
  std::sort(requests.begin(), requests.end(), [](const QueuedRequest& a, const QueuedRequest& b) {
    return a.deadline < b.deadline;
  });
  benchmark::DoNotOptimize(requests.data());
}

void BM_Sort(benchmark::State& state) {
  const std::vector<QueuedRequest> requests = overload(state.range(0));
  for (auto _ : state) {
    std::vector<QueuedRequest> copy = requests;
    sort_once(copy);
  }
}
BENCHMARK(BM_Sort)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);

void BM_PlanQueue(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const std::vector<QueuedRequest> requests = overload(state.range(0));
  // The pages suffice, so that every request goes through the heap.
  const QueueView view{.now = Instant{100s}, .free_pages = 1'000'000'000, .requests = requests};
  Clock::duration sorting{};
  Clock::duration planning{};
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    benchmark::DoNotOptimize(plan_queue(view, {.ahead = 20ms}));
    const Clock::time_point planned = Clock::now();
    state.PauseTiming();
    std::vector<QueuedRequest> copy = requests;
    const Clock::time_point copied = Clock::now();
    sort_once(copy);
    sorting += Clock::now() - copied;
    planning += planned - begin;
    state.ResumeTiming();
  }
  state.counters["per_sort"] =
      std::chrono::duration<double>(planning) / std::chrono::duration<double>(sorting);
}
BENCHMARK(BM_PlanQueue)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::policy
