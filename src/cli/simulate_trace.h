#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/simulate_files.h"
#include "sim/cluster.h"
#include "sim/otlp_trace.h"
#include "sim/planes/planes.h"

namespace heddle::cli {

/// What part of a file is replayed, and how fast.
struct TraceOptions {
  std::string file{};
  /// Set: these are the requests, and no file is read; `file` says for people where they are from.
  std::shared_ptr<const std::vector<sim::OtlpRow>> drawn{};
  std::string model{};            ///< Label of rows without one.
  double speed = 1;               ///< Arrivals come so many times as fast.
  Duration until{};               ///< Later rows (before speeding up) are left out; 0: none are.
  std::int64_t most_input = 0;    ///< Longer inputs are cut; 0: none are.
  std::int64_t least_output = 0;  ///< Shorter outputs are stretched.
};

/// What one pass over a trace tells: its models and their demand, and what is wrong with it.
struct TraceSummary {
  std::vector<sim::ModelSpec> models{};  ///< By name.
  std::vector<sim::OfflineDemand> demand{};
  std::int64_t rows = 0;
  std::int64_t bad_rows = 0;
  std::vector<std::string> problems{};  ///< File, line and reason of the first of them.
  Duration span{};                      ///< Of arrivals, sped up.
  [[nodiscard]] double requests_per_second() const;
};

/// Reads the whole file once. An error where it cannot be read to its end (kCorrupt: a gzip file
/// that was cut off), or has no request that can be replayed; single bad rows are counted.
Result<TraceSummary> survey_trace(const TraceOptions& options, const std::vector<ModelRule>& rules);

/// The requests of a surveyed trace; plain or gzip, in constant memory. `progress` is told the part
/// of the file that is read, now and then.
Result<std::unique_ptr<sim::RequestSource>> open_trace(const TraceOptions& options,
                                                       const std::vector<sim::ModelSpec>& models,
                                                       std::function<void(double)> progress);

/// All of them, in memory: 32 bytes each.
Result<std::vector<sim::TraceRow>> read_rows(const TraceOptions& options,
                                             const std::vector<sim::ModelSpec>& models);

}  // namespace heddle::cli
