#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/history_trace.h"
#include "cli/simulate_trace.h"
#include "sim/cluster.h"
#include "sim/control.h"

namespace heddle::cli {

/// Which requests are replayed and on what, as `heddle simulate` and `heddle plan` are told.
struct ReplayOptions {
  TraceOptions trace{};
  /// In place of a trace: what servers remember of their load, in these files or directories.
  std::vector<std::string> histories{};
  DrawOptions draw{};  ///< How requests are drawn from that.
  std::string cluster{};
  std::string models{};
  /// The configuration of a server, whose models are looked at where they lie: they are what the
  /// model file has no rule for.
  std::string config{};
  std::string slo{};   ///< "ttft=5s,tpot=100ms": the objectives of all models; else as they are.
  std::string perf{};  ///< Folder of constants; empty: find_perf_folder() looks for it.
  /// Where weights are when time begins, the same for every policy: "empty", only in the store;
  /// "warm", in host memory of every server, the most asked for first, as many as fit.
  std::string initial = "empty";
  Duration warmup{};  ///< Requests that come earlier are served and left out of all numbers.
};

/// What these files say.
struct Replay {
  TraceOptions trace{};  ///< To open the requests with.
  std::string origin{};  ///< What they were drawn from and how; empty where they were not.
  sim::ClusterSpec cluster{};
  TraceSummary summary{};
  std::vector<ModelId> most_asked_first{};  ///< All models.
  std::vector<ModelId> in_host_memory{};    ///< When time begins; the most asked for first.
};

/// Reads the files. Says on stderr what is wrong with rows that are left out. kNotFound and
/// kInvalidArgument name the file, the line and what would be right; as survey_trace() fails.
Result<Replay> load_replay(const ReplayOptions& options);

/// The options of a command that say which requests of which models there are.
[[nodiscard]] std::string workload_words(const ReplayOptions& options);

/// kInvalidArgument where no request comes after the warm-up. @param span  Of arrivals.
Result<void> check_warmup(const ReplayOptions& options, Duration span);

/// The policy set of `name` or `name:flag=value,flag=value` for that workload. kInvalidArgument and
/// kNotFound as of sim::make_plane, which also refuses models that it does not play.
Result<std::unique_ptr<sim::ControlPlane>> make_policy(const std::string& text,
                                                       const TraceSummary& summary);

/// Writes a report; "-" is stdout, nothing where no file is named. kUnavailable where it cannot be.
Result<void> write_report(const std::string& file, const std::string& text);

}  // namespace heddle::cli
