#include "cli/capacity_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "cli/simulate_trace.h"
#include "sim/print.h"

namespace heddle::cli {
namespace {

constexpr std::size_t kLateShown = 10;
constexpr std::size_t kMisfitsShown = 10;
/// Twice the servers that have no larger part in time than this, so often in a row, say that more
/// would not help either.
constexpr double kGain = 0.001;
constexpr int kInVain = 2;
/// Requests of which it is asked what lacks, where too few were enough to see that a size is too
/// small: fewer are mostly of a cluster that is cold.
constexpr std::size_t kLeastAsked = 2000;
/// Of what is replayed, what sizes that are surely enough are asked for; where it is not few
/// anyway.
constexpr std::int64_t kBriefly = 4;
constexpr std::int64_t kFew = 20'000;
/// Sizes that are replayed at once, however many cores there are, so that the same come of it.
constexpr std::size_t kAtOnce = 4;

/// Nothing where all is to be replayed, or is little.
std::optional<TracePart> brief_part(const CapacityQuestion& question,
                                    const std::vector<sim::TraceRow>& rows) {
  const std::int64_t most = std::min(question.sample, static_cast<std::int64_t>(rows.size()));
  return most < kFew
             ? std::nullopt
             : std::optional(draw_stretches(rows, question.warmup, most / kBriefly, question.seed));
}

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

/// The plan of one kind of server.
class KindPlanner {
 public:
  KindPlanner(const CapacityQuestion& question,
              CapacityReplays& replays,
              const TracePart& part,
              const std::optional<TracePart>& brief,
              const sim::HostSpec& server,
              const std::function<void(std::int64_t, std::int64_t)>& now)
      : question_(question),
        replays_(replays),
        part_(part),
        brief_(brief),
        server_(server),
        now_(now) {}

  Result<KindPlan> make() {
    KindPlan plan{.server = server_};
    const std::vector<ModelId> misfits = replays_.misfits(server_);
    for (std::size_t i = 0; i < std::min(misfits.size(), kMisfitsShown); ++i) {
      const sim::ModelSpec& spec = question_.replay.summary.models[misfits[i].value()];
      plan.misfits.push_back(spec.name + sim::print(" (%.1f GB of weights on %lld %s)",
                                                    static_cast<double>(spec.weight_bytes()) / 1e9,
                                                    static_cast<long long>(spec.tp),
                                                    spec.tp == 1 ? "GPU" : "GPUs"));
    }
    if (misfits.size() > kMisfitsShown) {
      plan.misfits.push_back(sim::print("%zu models more", misfits.size() - kMisfitsShown));
    }
    // A whole trace is one task for each size, so cores are kept busy by sizes side by side.
    const std::size_t ahead = part_.whole ? question_.threads : 1;
    std::vector<std::int64_t> sizes =
        scan_sizes(question_.most,
                   question_.target,
                   ahead,
                   [&](const std::vector<std::int64_t>& some, bool until_enough) {
                     return until_enough ? doubled(some) : between(some);
                   });
    if (failure_) {
      return *failure_;
    }
    std::ranges::sort(sizes);
    for (const std::int64_t servers : sizes) {
      plan.sizes.push_back(size_of(servers, tallies_.at(servers)));
    }
    for (std::size_t i = plan.sizes.size(); i-- > 0;) {
      const bool to_the_end = plan.sizes[i].replayed >= 1;
      const auto enough = [&](double part) { return to_the_end && part >= question_.target; };
      plan.least = enough(plan.sizes[i].attainment) ? std::optional(i) : plan.least;
      plan.sure = enough(plan.sizes[i].bounds.low) ? std::optional(i) : plan.sure;
    }
    Result<void> explained = {};
    if (!plan.least) {
      explained = say_who_is_late(plan);
    } else if (*plan.least > 0) {
      explained = say_what_lacks(plan);
    }
    return explained ? Result<KindPlan>(std::move(plan)) : explained.error();
  }

 private:
  [[nodiscard]] PlannedSize size_of(std::int64_t servers, const Tally& tally) const {
    const bool brief = briefly_.contains(servers);
    const TracePart& asked = brief ? *brief_ : part_;
    const double hours = tally.gpu_seconds / 3600;
    const double all =
        to_seconds(question_.replay.summary.span - question_.warmup) / to_seconds(asked.counted);
    return {.servers = servers,
            .replayed = tally.stop ? std::min(0.9999,
                                              static_cast<double>(tally.requests) /
                                                  static_cast<double>(part_.requests))
                                   : 1,
            .requests = tally.requests,
            .brief = brief,
            .attainment = tally.attainment(),
            .bounds = tally.interval.bounds(),
            .ttft_p99 = tally.ttft.at(0.99),
            .gpu_hours = asked.whole ? hours : hours * all,
            .unserved = tally.unserved};
  }

  [[nodiscard]] std::vector<ReplayedCluster> clusters_of(std::span<const std::int64_t> sizes) {
    now_(sizes.front(), sizes.back());
    std::vector<ReplayedCluster> clusters;
    for (const std::int64_t servers : sizes) {
      clusters.push_back({.server = server_, .servers = servers});
    }
    return clusters;
  }

  /// Whether it went well; what came of it is in `tallies_`.
  bool keep(std::span<const std::int64_t> sizes, Result<std::vector<Tally>> tallies) {
    if (!tallies) {
      failure_ = tallies.error();
      return false;
    }
    for (std::size_t i = 0; i < tallies->size(); ++i) {
      tallies_.insert_or_assign(sizes[i], std::move((*tallies)[i]));
    }
    return true;
  }

  /// A replay that was stopped is below the target, in the part that had ended as in all.
  [[nodiscard]] std::vector<double> parts_of(const std::vector<std::int64_t>& sizes) const {
    std::vector<double> parts;
    for (const std::int64_t servers : sizes) {
      const auto found = tallies_.find(servers);
      if (found == tallies_.end()) {
        break;
      }
      parts.push_back(found->second.attainment());
    }
    return parts;
  }

  std::vector<double> doubled(const std::vector<std::int64_t>& sizes) {
    const bool kept = keep(sizes, replays_.run_to_target(clusters_of(sizes), part_, true));
    return kept ? parts_of(sizes) : std::vector<double>();
  }

  /// Sizes ascending: up to one that is surely enough of all that is to be replayed; then briefly,
  /// but for those that are not enough after all.
  std::vector<double> between(const std::vector<std::int64_t>& sizes) {
    const std::span<const std::int64_t> all(sizes);
    std::size_t asked = 0;
    for (bool sure = false; asked < all.size() && !(sure && brief_);) {
      const auto some = all.subspan(asked, std::min(kAtOnce, all.size() - asked));
      if (!keep(some, replays_.run_to_target(clusters_of(some), part_, false))) {
        return {};
      }
      sure = std::ranges::any_of(some, [this](std::int64_t servers) {
        const Tally& tally = tallies_.at(servers);
        return !tally.stop && tally.interval.bounds().low >= question_.target;
      });
      asked += some.size();
    }
    const auto rest = all.subspan(asked);
    if (rest.empty()) {
      return parts_of(sizes);
    }
    if (!keep(rest, replays_.run_whole(clusters_of(rest), *brief_))) {
      return {};
    }
    std::vector<std::int64_t> doubtful;
    for (const std::int64_t servers : rest) {
      if (tallies_.at(servers).attainment() < question_.target) {
        doubtful.push_back(servers);
      } else {
        briefly_.insert(servers);
      }
    }
    if (!doubtful.empty() &&
        !keep(doubtful, replays_.run_to_target(clusters_of(doubtful), part_, false))) {
      return {};
    }
    return parts_of(sizes);
  }

  /// The requests with which a size was seen to be too small; all, where it took all to see it.
  [[nodiscard]] TracePart seen_by(const Tally& tally) const {
    if (!tally.stop) {
      return part_;
    }
    const Stretch& last = part_.stretches[tally.stop->stretch];
    const auto counted =
        std::ranges::lower_bound(replays_.rows(), last.counted, {}, &sim::TraceRow::arrival) -
        replays_.rows().begin();
    const std::size_t least =
        std::min(static_cast<std::size_t>(counted) + kLeastAsked, last.end) - 1;
    const Instant until = std::max(tally.stop->at, replays_.rows()[least].arrival);
    return beginning_of(part_, replays_.rows(), tally.stop->stretch + 1, until);
  }

  /// What would help the largest size that is too small.
  Result<void> say_what_lacks(KindPlan& plan) {
    const std::int64_t servers = plan.sizes[*plan.least - 1].servers;
    const Tally& before = tallies_.at(servers);
    std::vector<ReplayedCluster> clusters;
    for (const auto& [what, rich] : richer(server_)) {
      clusters.push_back({.server = rich, .servers = servers});
      plan.reliefs.push_back({.what = what});
    }
    TracePart asked = seen_by(before);
    if (brief_ && brief_->requests < asked.requests) {
      asked = *brief_;
    }
    const bool known = asked.requests == part_.requests && !before.stop;
    if (!known) {
      clusters.push_back({.server = server_, .servers = servers});
    }
    now_(servers, servers);
    auto tallies = replays_.run_whole(clusters, asked);
    if (!tallies) {
      return tallies.error();
    }
    for (std::size_t i = 0; i < plan.reliefs.size(); ++i) {
      plan.reliefs[i].attainment = (*tallies)[i].attainment();
    }
    const Tally& base = known ? before : tallies->back();
    plan.relieved = {.requests = base.requests, .attainment = base.attainment()};
    std::sort(plan.reliefs.begin(), plan.reliefs.end(), [](const Relief& a, const Relief& b) {
      return std::pair(-a.attainment, a.what) < std::pair(-b.attainment, b.what);
    });
    return {};
  }

  /// Where none is enough: what the largest says of its models.
  Result<void> say_who_is_late(KindPlan& plan) {
    PlannedSize& largest = plan.sizes.back();
    Tally& known = tallies_.at(largest.servers);
    if (known.stop) {
      now_(largest.servers, largest.servers);
      auto tallies =
          replays_.run_whole({{.server = server_, .servers = largest.servers}}, seen_by(known));
      if (!tallies) {
        return tallies.error();
      }
      largest.unserved = tallies->front().unserved;
      plan.late = late_models(tallies->front());
    } else {
      plan.late = late_models(known);
    }
    return {};
  }

  [[nodiscard]] std::vector<LateModel> late_models(const Tally& tally) const {
    std::vector<LateModel> late;
    for (std::size_t i = 0; i < tally.models.size(); ++i) {
      const ModelTally& counted = tally.models[i];
      const double met = counted.requests > 0 ? static_cast<double>(counted.met) /
                                                    static_cast<double>(counted.requests)
                                              : 1;
      if (met < question_.target) {
        const sim::ModelSpec& spec = question_.replay.summary.models[i];
        late.push_back({.model = spec.name,
                        .attainment = met,
                        .objective = {.ttft = spec.slo_ttft, .tpot = spec.slo_tpot},
                        .ttft = counted.ttft,
                        .tpot = counted.tpot});
      }
    }
    std::sort(late.begin(), late.end(), [](const LateModel& a, const LateModel& b) {
      return std::pair(a.attainment, a.model) < std::pair(b.attainment, b.model);
    });
    late.resize(std::min(late.size(), kLateShown));
    return late;
  }

  const CapacityQuestion& question_;
  CapacityReplays& replays_;
  const TracePart& part_;
  const std::optional<TracePart>& brief_;
  const sim::HostSpec& server_;
  const std::function<void(std::int64_t, std::int64_t)>& now_;
  std::map<std::int64_t, Tally> tallies_{};
  std::set<std::int64_t> briefly_{};  ///< Of these sizes those that were asked for `brief_`.
  std::optional<Error> failure_{};
};

}  // namespace

std::vector<std::int64_t> scan_sizes(std::int64_t most,
                                     double target,
                                     std::size_t ahead,
                                     const AttainedParts& attained) {
  std::vector<std::int64_t> sizes;
  std::int64_t small = 0;
  std::int64_t large = 0;
  double best = -1;
  int in_vain = 0;
  while (large == small) {
    std::vector<std::int64_t> next{std::min(std::max<std::int64_t>(1, 2 * small), most)};
    while (next.size() < ahead && next.back() < most) {
      next.push_back(std::min(2 * next.back(), most));
    }
    const std::vector<double> parts = attained(next, true);
    if (parts.empty()) {
      return sizes;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      sizes.push_back(next[i]);
      large = next[i];
      if (parts[i] >= target) {
        break;
      }
      in_vain = parts[i] > best + kGain ? 0 : in_vain + 1;
      best = std::max(best, parts[i]);
      small = large;
      if (large == most || in_vain == kInVain) {
        return sizes;
      }
    }
  }
  std::vector<std::int64_t> between;
  for (std::int64_t size = small + 1; size < large; ++size) {
    between.push_back(size);
  }
  if (!between.empty()) {
    (void)attained(between, false);
    sizes.insert(sizes.end(), between.begin(), between.end());
  }
  return sizes;
}

Result<CapacityPlans> plan_capacity(const CapacityQuestion& question,
                                    const std::function<void(const PlanProgress&)>& progress) {
  auto rows = read_rows(question.trace, question.replay.summary.models);
  if (!rows) {
    return rows.error();
  }
  const TracePart part = draw_stretches(*rows, question.warmup, question.sample, question.seed);
  const std::optional<TracePart> brief = brief_part(question, *rows);
  PlanProgress shown;
  auto replays = CapacityReplays::make(question.replay,
                                       std::move(rows).value(),
                                       {.policy = question.policy,
                                        .target = question.target,
                                        .threads = question.threads,
                                        .progress = [&](const ReplayProgress& how) {
                                          shown.how = how;
                                          progress(shown);
                                        }});
  if (!replays) {
    return replays.error();
  }
  CapacityPlans plans{
      .requests = part.requests, .stretches = part.stretches.size(), .whole = part.whole};
  for (const sim::HostSpec& server : kinds_of(question.replay.cluster)) {
    const std::function<void(std::int64_t, std::int64_t)> now = [&](std::int64_t least,
                                                                    std::int64_t most) {
      shown = {.kind = server.name.empty() ? server.gpu.name : server.name,
               .least = least,
               .most = most};
    };
    Result<KindPlan> plan = KindPlanner(question, *replays, part, brief, server, now).make();
    if (!plan) {
      return plan.error();
    }
    plans.kinds.push_back(std::move(plan).value());
  }
  return plans;
}

}  // namespace heddle::cli
