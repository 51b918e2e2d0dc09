#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
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
};

/// Requests that were never served, for one reason.
struct NeverServed {
  std::string why{};
  std::int64_t requests = 0;
  std::vector<std::string> models{};
};

/// A cluster of so many equal servers, with the workload replayed on it.
struct PlannedSize {
  std::int64_t servers = 0;
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
  std::vector<PlannedSize> sizes{};    ///< Ascending: every one around the least that does.
  std::optional<std::size_t> least{};  ///< The first of these that meets the target.
  std::optional<std::size_t> sure{};   ///< The first whose lower bound does.
  std::vector<Relief> reliefs{};       ///< Of the size before `least`, the best first.
  std::vector<LateModel> late{};       ///< Where none meets it, the latest first.
};

/// Looks at clusters of as many servers as it takes: doubled until the part in time that `attained`
/// returns is `target`, `most` is reached, or two doublings in a row gain nothing; then every size
/// between the last that is too small and the first that is not. More servers are not always
/// better, so none between is left out. Returns what was looked at, in that order.
[[nodiscard]] std::vector<std::int64_t> scan_sizes(
    std::int64_t most, double target, const std::function<double(std::int64_t)>& attained);

/// How many servers of each kind the workload needs: `CapacityQuestion::policy` serves it on
/// clusters of every size that matters. `progress` hears what is replayed. kInvalidArgument or
/// kNotFound as of the simulator: a policy that there is not, a warm-up longer than the trace.
Result<std::vector<KindPlan>> plan_capacity(
    const CapacityQuestion& question,
    const std::function<void(const sim::HostSpec&, std::int64_t)>& progress);

}  // namespace heddle::cli
