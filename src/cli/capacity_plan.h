#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/capacity_replay.h"
#include "cli/replay.h"
#include "sim/attainment_interval.h"
#include "sim/cluster.h"
#include "sim/request_row.h"

namespace heddle::cli {

/// What a plan is made for.
struct CapacityQuestion {
  TraceOptions trace{};
  Replay replay{};                ///< Each kind of server in its cluster is tried alone.
  std::string policy = "heddle";  ///< A policy set of `heddle simulate`, by name.
  double target = 0.99;           ///< Part of all requests that is to meet both objectives.
  std::int64_t most = 64;         ///< Servers of a kind at most.
  Duration warmup{};              ///< Requests that come earlier are served and not counted.
  /// Requests that are replayed at each size at most, in stretches of a longer trace; sizes above
  /// one that is surely enough, and what lacks, are asked of a quarter of them. 0: all, everywhere.
  std::int64_t sample = kSample;
  std::uint64_t seed = 1;   ///< Of where these stretches lie.
  std::size_t threads = 1;  ///< That replay.
  std::string origin{};     ///< Where the requests are from, if not from a trace; for people.

  static constexpr std::int64_t kSample = 60'000;
};

/// A cluster of so many equal servers, with the workload replayed on it.
struct PlannedSize {
  std::int64_t servers = 0;
  /// 1, or less where it was replayed until so many requests were late that the target was out of
  /// reach: the part of the requests that had ended then, of which the other numbers are.
  double replayed = 1;
  std::int64_t requests = 0;  ///< That have ended and count.
  bool brief = false;         ///< Above one that is surely enough, it was asked for fewer.
  double attainment = 0;
  sim::AttainmentInterval::Bounds bounds{};  ///< Of that.
  double ttft_p99 = 0;                       ///< [s]
  double gpu_hours = 0;                      ///< In which a GPU held anything.
  std::vector<NeverServed> unserved{};       ///< The most requests first.
};

/// What would come of the largest cluster that is too small if it had more of one thing.
struct Relief {
  std::string_view what{};
  double attainment = 0;
};

/// What was asked of that cluster, and what it has without more.
struct ReliefBase {
  std::int64_t requests = 0;  ///< Of which the parts in time are.
  double attainment = 0;
};

/// A model whose requests are late on the largest cluster that was tried.
struct LateModel {
  std::string model{};
  double attainment = 0;
  sim::Objective objective{};
  std::optional<Duration> ttft{};  ///< The best that any of them had.
  std::optional<Duration> tpot{};
};

/// One kind of server.
struct KindPlan {
  sim::HostSpec server{};
  std::vector<std::string> misfits{};  ///< Models that no such server has room for, and their size.
  std::vector<PlannedSize> sizes{};    ///< Ascending: every one around the least that does.
  std::optional<std::size_t> least{};  ///< The first of these that meets the target.
  std::optional<std::size_t> sure{};   ///< The first whose lower bound does.
  std::vector<Relief> reliefs{};       ///< Of the size before `least`, the best first.
  ReliefBase relieved{};               ///< That size, with nothing more.
  std::vector<LateModel> late{};       ///< Where none meets it, the latest first.
};

/// All plans, and what they are made from.
struct CapacityPlans {
  std::vector<KindPlan> kinds{};
  std::int64_t requests = 0;  ///< That are replayed at each size, and count.
  std::size_t stretches = 1;  ///< In which these are.
  bool whole = true;          ///< They are all that the workload has behind its warm-up.
};

/// What is being replayed.
struct PlanProgress {
  std::string_view kind{};  ///< Of server.
  std::int64_t least = 0;   ///< Servers; and at most:
  std::int64_t most = 0;
  ReplayProgress how{};
};

/// What part is in time on clusters of so many servers each. With `until_enough` those behind the
/// first that is enough may be left out of the answer.
using AttainedParts =
    std::function<std::vector<double>(const std::vector<std::int64_t>& sizes, bool until_enough)>;

/// Looks at clusters of as many servers as it takes: doubled until the part in time is `target`,
/// `most` is reached, or two doublings in a row gain nothing; then every size between the last that
/// is too small and the first that is not. More servers are not always better, so none between is
/// left out. Returns what was looked at, in that order.
/// @param ahead  Doublings that are asked for at once.
[[nodiscard]] std::vector<std::int64_t> scan_sizes(std::int64_t most,
                                                   double target,
                                                   std::size_t ahead,
                                                   const AttainedParts& attained);

/// How many servers of each kind the workload needs: `CapacityQuestion::policy` serves it on
/// clusters of every size that matters. `progress` hears what is replayed, several times a second.
/// kInvalidArgument or kNotFound as of the simulator: a policy that there is not, a warm-up longer
/// than the trace.
Result<CapacityPlans> plan_capacity(const CapacityQuestion& question,
                                    const std::function<void(const PlanProgress&)>& progress);

}  // namespace heddle::cli
