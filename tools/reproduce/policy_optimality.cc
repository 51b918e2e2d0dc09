// How near to the best two planners come, on random instances that are small enough to try all
// ways: policy/device_queue (Moore-Hodgson) and sim/planes/kv_plan (KVPR). Prints one JSON object.
//
//   policy_optimality [SEED]
//
// Queue: 400 instances of 10 requests, prefill 0.05 to 1 s, deadlines 0.2 to 3 s (overload). KVPR:
// 8 models on 2 GPUs and 9 on 3, of 2.5 to 28 GB, demands with a Pareto tail, GPUs of 67 GB.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/rng.h"
#include "policy/device_queue.h"
#include "sim/planes/kv_plan.h"

namespace {

using namespace heddle;
using policy::QueuedRequest;

double uniform(Rng& rng, double least, double most) {
  return least + (most - least) * static_cast<double>(rng.next() >> 11U) * 0x1p-53;
}

template <std::size_t N>
double pick(Rng& rng, const std::array<double, N>& from) {
  return from[rng.next() % N];
}

Duration seconds(double value) {
  return Duration(std::llround(value * 1e9));
}

// ---- The queue of one device.

constexpr std::int64_t kRequests = 10;
constexpr Instant kNow{std::chrono::seconds(100)};

std::vector<QueuedRequest> random_queue(Rng& rng) {
  std::vector<QueuedRequest> requests;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    const Duration prefill = seconds(pick(rng, std::array{0.05, 0.1, 0.2, 0.5, 1.0}));
    requests.push_back({.id = RequestId(i),
                        .model = ModelId(0),
                        .arrived = kNow - seconds(uniform(rng, 0, 2)),
                        .deadline = kNow + seconds(uniform(rng, 0.2, 3.0)),
                        .prefill = prefill,
                        .kv_pages = 1});
  }
  return requests;
}

/// Requests in time when served in this order, late ones too.
std::int64_t on_time(const std::vector<QueuedRequest>& order) {
  Instant at = kNow;
  std::int64_t count = 0;
  for (const QueuedRequest& request : order) {
    at += request.prefill;
    count += at <= request.deadline ? 1 : 0;
  }
  return count;
}

std::vector<QueuedRequest> by_deadline(std::vector<QueuedRequest> requests) {
  std::sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
    return a.deadline < b.deadline;
  });
  return requests;
}

/// The most that any order brings in time: some subset, by deadline.
std::int64_t best_on_time(const std::vector<QueuedRequest>& requests) {
  const std::vector<QueuedRequest> sorted = by_deadline(requests);
  std::int64_t best = 0;
  for (std::uint32_t mask = 0; mask < 1U << kRequests; ++mask) {
    std::vector<QueuedRequest> chosen;
    for (std::size_t i = 0; i < kRequests; ++i) {
      if ((mask >> i & 1U) != 0) {
        chosen.push_back(sorted[i]);
      }
    }
    const std::int64_t count = on_time(chosen);
    best = count == std::ssize(chosen) ? std::max(best, count) : best;
  }
  return best;
}

std::string queue_report(Rng& rng) {
  constexpr int kInstances = 400;
  int optimal = 0;
  std::map<std::string, std::int64_t> met;
  for (int i = 0; i < kInstances; ++i) {
    const std::vector<QueuedRequest> requests = random_queue(rng);
    const policy::QueuePlan plan = policy::plan_queue(
        {.now = kNow, .free_pages = 1000, .requests = requests}, {.ahead = std::chrono::hours(1)});
    const std::int64_t best = best_on_time(requests);
    const std::int64_t ours = std::ssize(plan.on_time);
    optimal += ours == best ? 1 : 0;
    const auto sorted = [&](auto key) {
      std::vector<QueuedRequest> order = requests;
      std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        return std::pair(key(a), a.id) < std::pair(key(b), b.id);
      });
      return on_time(order);
    };
    met["best"] += best;
    met["moore_hodgson"] += ours;
    met["by_deadline"] += on_time(by_deadline(requests));
    met["least_slack"] += sorted([](const auto& r) { return r.deadline - r.prefill; });
    met["arrival"] += sorted([](const auto& r) { return r.arrived; });
    met["shortest"] += sorted([](const auto& r) { return r.prefill; });
  }
  std::string text =
      fmt::format("\"queue\":{{\"instances\":{},\"optimal\":{}", kInstances, optimal);
  for (const auto& [rule, count] : met) {
    text +=
        fmt::format(",\"{}\":{:.4f}", rule, static_cast<double>(count) / (kInstances * kRequests));
  }
  return text + "}";
}

// ---- KVPR.

constexpr double kGpuBytes = 67e9;

struct Instance {
  std::vector<policy::KvModel> models{};
  std::vector<policy::KvDevice> devices{};
};

Instance random_instance(Rng& rng, std::size_t models, std::size_t gpus) {
  Instance made;
  for (std::size_t i = 0; i < models; ++i) {
    const double size = pick(rng, std::array{2.5, 2.5, 6.0, 6.0, 15.0, 16.0, 28.0});
    const double pareto = 1 / (1 - uniform(rng, 0, 1));
    made.models.push_back({.model = ModelId(i),
                           .demand = pareto * uniform(rng, 0.2, 1) * 1e9,
                           .bytes = std::llround(size * 1e9)});
  }
  for (std::size_t g = 0; g < gpus; ++g) {
    made.devices.push_back(
        {.id = DeviceId(g), .host = HostId(g), .bytes = std::llround(kGpuBytes)});
  }
  return made;
}

/// The least of the greatest pressures, over all ways to place; nullopt: nothing fits.
std::optional<double> best_pressure(const Instance& instance) {
  const std::size_t models = instance.models.size();
  const std::size_t gpus = instance.devices.size();
  std::vector<double> demand(gpus, 0);
  std::vector<double> left(gpus, kGpuBytes);
  std::optional<double> best;
  const std::function<void(std::size_t)> place = [&](std::size_t i) {
    if (i == models) {
      double worst = 0;
      for (std::size_t g = 0; g < gpus; ++g) {
        worst = std::max(worst, demand[g] / left[g]);
      }
      best = std::min(best.value_or(worst), worst);
      return;
    }
    const policy::KvModel& model = instance.models[i];
    const auto bytes = static_cast<double>(model.bytes);
    for (std::size_t g = 0; g < gpus; ++g) {
      if (left[g] > bytes) {
        demand[g] += model.demand;
        left[g] -= bytes;
        place(i + 1);
        demand[g] -= model.demand;
        left[g] += bytes;
      }
    }
  };
  place(0);
  return best;
}

std::string placement_report(Rng& rng, std::size_t models, std::size_t gpus, int instances) {
  constexpr std::array kPlanners{std::pair{"paper", sim::KvPlanner::kPaper},
                                 std::pair{"greedy", sim::KvPlanner::kGreedy},
                                 std::pair{"threshold", sim::KvPlanner::kThreshold}};
  std::map<std::string, std::vector<double>> ratios;
  for (int i = 0; i < instances; ++i) {
    const Instance instance = random_instance(rng, models, gpus);
    double sum = 0;
    for (const policy::KvModel& model : instance.models) {
      sum += static_cast<double>(model.bytes);
    }
    const std::optional<double> best = best_pressure(instance);
    if (!best || sum > 0.95 * kGpuBytes * static_cast<double>(gpus)) {
      continue;
    }
    for (const auto& [name, planner] : kPlanners) {
      const sim::KvPlan plan =
          sim::plan_kv_placement(instance.models, instance.devices, {.planner = planner});
      if (plan.unplaced.empty()) {
        ratios[name].push_back(plan.max_pressure / *best);
      }
    }
  }
  std::string text =
      fmt::format("{{\"models\":{},\"gpus\":{},\"instances\":{}", models, gpus, instances);
  for (auto& [name, values] : ratios) {
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (const double value : values) {
      sum += value;
    }
    text += fmt::format(",\"{}\":{{\"mean\":{:.4f},\"p95\":{:.4f},\"max\":{:.4f},\"placed\":{}}}",
                        name,
                        sum / static_cast<double>(values.size()),
                        values[values.size() * 95 / 100],
                        values.back(),
                        values.size());
  }
  return text + "}";
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t seed = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1;
  Rng rng(seed);
  const std::string queue = queue_report(rng);
  const std::string two = placement_report(rng, 8, 2, 400);
  const std::string three = placement_report(rng, 9, 3, 200);
  fmt::print("{{\"seed\":{},{},\"placement\":[{},{}]}}\n", seed, queue, two, three);
  return 0;
}
