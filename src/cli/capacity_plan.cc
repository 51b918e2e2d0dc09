#include "cli/capacity_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "sim/results.h"
#include "sim/world.h"

namespace heddle::cli {
namespace {

constexpr std::size_t kLateShown = 10;
/// Twice the servers that have no larger part in time than this, so often in a row, say that more
/// would not help either.
constexpr double kGain = 0.001;
constexpr int kInVain = 2;

/// What a run says of one model.
struct Best {
  std::optional<Duration> ttft{};
  std::optional<Duration> tpot{};
};

void least_of(std::optional<Duration>& least, const std::optional<Duration>& value) {
  if (value) {
    least = least ? std::min(*least, *value) : value;
  }
}

struct Replayed {
  PlannedSize size{};
  std::vector<LateModel> late{};
};

/// Servers of a file, each kind once: how many there are of it is what is asked.
std::vector<sim::HostSpec> kinds_of(const sim::ClusterSpec& cluster) {
  std::vector<sim::HostSpec> kinds;
  for (const sim::HostSpec& host : cluster.hosts) {
    const auto same = [&](const sim::HostSpec& kind) {
      return std::tie(kind.name, kind.gpu.name, kind.gpus, kind.links.nic) ==
             std::tie(host.name, host.gpu.name, host.gpus, host.links.nic);
    };
    if (std::ranges::none_of(kinds, same)) {
      kinds.push_back(host);
    }
  }
  return kinds;
}

std::vector<LateModel> late_models(const CapacityQuestion& question,
                                   const sim::Results& results,
                                   const std::map<ModelId, Best>& best) {
  std::vector<LateModel> late;
  for (std::size_t i = 0; i < results.models().size(); ++i) {
    const sim::Results::PerModel& counted = results.models()[i];
    const double met = counted.requests > 0 ? static_cast<double>(counted.both_met) /
                                                  static_cast<double>(counted.requests)
                                            : 1;
    if (met < question.target) {
      const sim::ModelSpec& spec = question.replay.summary.models[i];
      const auto found = best.find(ModelId(i));
      const Best none;
      const Best& its = found != best.end() ? found->second : none;
      late.push_back({.model = spec.name,
                      .attainment = met,
                      .objective = {.ttft = spec.slo_ttft, .tpot = spec.slo_tpot},
                      .ttft = its.ttft,
                      .tpot = its.tpot});
    }
  }
  std::sort(late.begin(), late.end(), [](const LateModel& a, const LateModel& b) {
    return std::pair(a.attainment, a.model) < std::pair(b.attainment, b.model);
  });
  late.resize(std::min(late.size(), kLateShown));
  return late;
}

std::vector<NeverServed> never_served(const TraceSummary& summary, const sim::RunEnd& end) {
  std::vector<NeverServed> reasons;
  for (const sim::Unserved& each : end.unserved) {
    auto found = std::ranges::find(reasons, each.why, &NeverServed::why);
    if (found == reasons.end()) {
      found = reasons.insert(reasons.end(), {.why = each.why});
    }
    found->requests += each.requests;
    found->models.push_back(summary.models[each.model.value()].name);
  }
  std::ranges::sort(reasons, std::greater<>(), &NeverServed::requests);
  return reasons;
}

/// Replays the workload on so many servers.
Result<Replayed> replay(const CapacityQuestion& question,
                        const sim::HostSpec& server,
                        std::int64_t servers) {
  const TraceSummary& summary = question.replay.summary;
  const auto plane = make_policy(question.policy, summary);
  if (!plane) {
    return plane.error();
  }
  auto source = open_trace(question.trace, summary.models, {});
  if (!source) {
    return source.error();
  }
  sim::AttainmentInterval interval(Instant(question.warmup), summary.span - question.warmup);
  std::map<ModelId, Best> best;
  sim::Results results({.warmup = question.warmup, .each = [&](const sim::RequestRow& row) {
                          const sim::ModelSpec& spec = summary.models[row.model.value()];
                          const sim::Met met =
                              sim::met(row, {.ttft = spec.slo_ttft, .tpot = spec.slo_tpot});
                          interval.add(row.arrival, met.both());
                          least_of(best[row.model].ttft, met.ttft);
                          least_of(best[row.model].tpot, met.tpot);
                        }});
  const sim::ClusterSpec cluster{
      .hosts = std::vector<sim::HostSpec>(static_cast<std::size_t>(servers), server),
      .page_bytes = question.replay.cluster.page_bytes};
  sim::World world(cluster,
                   summary.models,
                   **plane,
                   results,
                   {.in_host_memory = question.replay.in_host_memory, .warmup = question.warmup});
  world.run(**source);
  results.finish(world);
  Replayed replayed{.size = {.servers = servers,
                             .attainment = results.attainment(),
                             .bounds = interval.bounds(),
                             .ttft_p99 = results.ttft().at(0.99),
                             .gpu_hours = results.gpu_seconds() / 3600},
                    .late = late_models(question, results, best)};
  replayed.size.unserved = never_served(summary, results.end());
  return replayed;
}

/// The server with more of one thing.
std::array<std::pair<std::string_view, sim::HostSpec>, 4> richer(const sim::HostSpec& server) {
  constexpr double kFaster = 10;
  std::array<std::pair<std::string_view, sim::HostSpec>, 4> all{{
      {"twice the memory on each GPU", server},
      {"a network ten times as fast", server},
      {"links to the GPUs ten times as fast", server},
      {"GPUs twice as fast", server},
  }};
  all[0].second.gpu.memory *= 2;
  all[1].second.links.nic *= kFaster;
  for (double* rate : {&all[2].second.links.pcie,
                       &all[2].second.links.host_memory,
                       &all[2].second.links.nvlink,
                       &all[2].second.links.spread}) {
    *rate *= kFaster;
  }
  all[3].second.gpu.flops *= 2;
  all[3].second.gpu.bandwidth *= 2;
  return all;
}

/// What lacks on so many servers.
Result<std::vector<Relief>> reliefs_of(const CapacityQuestion& question,
                                       const sim::HostSpec& server,
                                       std::int64_t servers) {
  std::vector<Relief> reliefs;
  for (const auto& [what, rich] : richer(server)) {
    const Result<Replayed> replayed = replay(question, rich, servers);
    if (!replayed) {
      return replayed.error();
    }
    reliefs.push_back({.what = what, .attainment = replayed->size.attainment});
  }
  std::sort(reliefs.begin(), reliefs.end(), [](const Relief& a, const Relief& b) {
    return std::pair(-a.attainment, a.what) < std::pair(-b.attainment, b.what);
  });
  return reliefs;
}

}  // namespace

std::vector<std::int64_t> scan_sizes(std::int64_t most,
                                     double target,
                                     const std::function<double(std::int64_t)>& attained) {
  std::vector<std::int64_t> sizes;
  std::int64_t small = 0;
  std::int64_t large = 1;
  double best = -1;
  int in_vain = 0;
  for (;; large = std::min(2 * large, most)) {
    sizes.push_back(large);
    const double part = attained(large);
    if (part >= target) {
      break;
    }
    in_vain = part > best + kGain ? 0 : in_vain + 1;
    best = std::max(best, part);
    small = large;
    if (large == most || in_vain == kInVain) {
      return sizes;
    }
  }
  for (std::int64_t size = small + 1; size < large; ++size) {
    sizes.push_back(size);
    (void)attained(size);
  }
  return sizes;
}

Result<std::vector<KindPlan>> plan_capacity(
    const CapacityQuestion& question,
    const std::function<void(const sim::HostSpec&, std::int64_t)>& progress) {
  std::vector<KindPlan> plans;
  for (const sim::HostSpec& server : kinds_of(question.replay.cluster)) {
    KindPlan plan{.server = server};
    std::map<std::int64_t, Replayed> replayed;
    std::optional<Error> failure;
    (void)scan_sizes(question.most, question.target, [&](std::int64_t servers) {
      progress(server, servers);
      Result<Replayed> run = failure ? *failure : replay(question, server, servers);
      if (!run) {
        failure = run.error();
        return 1.0;
      }
      const double part = run->size.attainment;
      replayed[servers] = std::move(run).value();
      return part;
    });
    if (failure) {
      return *failure;
    }
    for (auto& [servers, run] : replayed) {
      plan.sizes.push_back(run.size);
    }
    for (std::size_t i = plan.sizes.size(); i-- > 0;) {
      plan.least = plan.sizes[i].attainment >= question.target ? std::optional(i) : plan.least;
      plan.sure = plan.sizes[i].bounds.low >= question.target ? std::optional(i) : plan.sure;
    }
    if (!plan.least) {
      plan.late = replayed.rbegin()->second.late;
    } else if (*plan.least > 0) {
      progress(server, plan.sizes[*plan.least - 1].servers);
      auto reliefs = reliefs_of(question, server, plan.sizes[*plan.least - 1].servers);
      if (!reliefs) {
        return reliefs.error();
      }
      plan.reliefs = std::move(reliefs).value();
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace heddle::cli
