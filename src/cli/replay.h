#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/simulate_trace.h"
#include "sim/cluster.h"
#include "sim/control.h"

namespace heddle::cli {

/// Which requests are replayed and on what, as `heddle simulate` and `heddle plan` are told.
struct ReplayOptions {
  TraceOptions trace{};
  std::string cluster{};
  std::string models{};
  std::string perf{};  ///< Folder of constants; empty: find_perf_folder() looks for it.
  /// Where weights are when time begins, the same for every policy: "empty", only in the store;
  /// "warm", in host memory of every server, the most asked for first, as many as fit.
  std::string initial = "empty";
  Duration warmup{};  ///< Requests that come earlier are served and left out of all numbers.
  std::uint64_t seed = 1;  ///< Of all that is drawn.
};

/// What these files say.
struct Replay {
  sim::ClusterSpec cluster{};
  TraceSummary summary{};
  std::vector<ModelId> most_asked_first{};  ///< All models.
  std::vector<ModelId> in_host_memory{};    ///< When time begins; the most asked for first.
};

/// Reads the files. Says on stderr what is wrong with rows that are left out. kNotFound and
/// kInvalidArgument name the file, the line and what would be right; as survey_trace() fails.
Result<Replay> load_replay(const ReplayOptions& options);

/// kInvalidArgument where no request comes after the warm-up. @param span  Of arrivals.
Result<void> check_warmup(const ReplayOptions& options, Duration span);

/// The policy set of `name` or `name:flag=value,flag=value` for that workload. kInvalidArgument and
/// kNotFound as of sim::make_plane, which also refuses models that it does not play.
Result<std::unique_ptr<sim::ControlPlane>> make_policy(const std::string& text,
                                                       const TraceSummary& summary);

/// Writes a report; "-" is stdout, nothing where no file is named. kUnavailable where it cannot be.
Result<void> write_report(const std::string& file, const std::string& text);

}  // namespace heddle::cli
