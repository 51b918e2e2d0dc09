#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/replay.h"
#include "cli/trace_stretches.h"
#include "sim/attainment_interval.h"
#include "sim/cluster.h"
#include "sim/quantiles.h"

namespace heddle::cli {

/// Requests that were never served, for one reason.
struct NeverServed {
  std::string why{};
  std::int64_t requests = 0;
  std::vector<std::string> models{};
};

/// What replays say of one model.
struct ModelTally {
  std::int64_t requests = 0;
  std::int64_t met = 0;            ///< Both objectives.
  std::optional<Duration> ttft{};  ///< The best that any of them had.
  std::optional<Duration> tpot{};
};

/// What came of a workload, or of the part of it that was replayed, on one cluster.
struct Tally {
  std::int64_t requests = 0;  ///< That have ended and count.
  std::int64_t met = 0;       ///< Both objectives.
  sim::AttainmentInterval interval;
  sim::Quantiles ttft{};             ///< [s]
  double gpu_seconds = 0;            ///< In which a GPU held anything.
  std::vector<ModelTally> models{};  ///< As they are numbered.
  std::vector<NeverServed> unserved{};
  /// Where it was known that too few would be in time: in which stretch, and with the request that
  /// had come last then, by the trace's clock. Requests that had not ended are not counted.
  struct Stop {
    std::size_t stretch = 0;
    Instant at{};
  };
  std::optional<Stop> stop{};

  [[nodiscard]] double attainment() const {
    return requests > 0 ? static_cast<double>(met) / static_cast<double>(requests) : 0;
  }
  /// What another replay says of other requests.
  void add(Tally&& other);
};

/// A cluster of so many equal servers.
struct ReplayedCluster {
  sim::HostSpec server{};
  std::int64_t servers = 0;
};

/// How far a batch of replays is.
struct ReplayProgress {
  double part = 0;       ///< Of the requests that may have to be replayed.
  Duration remaining{};  ///< At this pace; 0: not known yet.
};

/// Replays a workload on clusters, side by side on several cores. What comes of it depends on
/// neither their number nor their pace.
class CapacityReplays {
 public:
  struct Options {
    std::string policy = "heddle";  ///< A policy set, by name.
    double target = 0.99;           ///< Part of the requests that is to be in time.
    std::size_t threads = 1;
    std::function<void(const ReplayProgress&)> progress{};  ///< Called several times a second.
  };
  /// `replay` outlives it. kInvalidArgument and kNotFound as make_policy().
  static Result<CapacityReplays> make(const Replay& replay,
                                      std::vector<sim::TraceRow> rows,
                                      Options options);

  [[nodiscard]] const std::vector<sim::TraceRow>& rows() const { return rows_; }

  /// Models of which no such server can have an instance, for want of memory or of GPUs.
  [[nodiscard]] std::vector<ModelId> misfits(const sim::HostSpec& server) const;

  /// What comes of these requests on each of the clusters. A replay ends early when so many
  /// requests were late that the others cannot make up for them (Tally::stop).
  /// @param until_enough  Leave out the clusters behind the first that is enough.
  Result<std::vector<Tally>> run_to_target(const std::vector<ReplayedCluster>& clusters,
                                           const TracePart& part,
                                           bool until_enough);
  /// The same, each to the end.
  Result<std::vector<Tally>> run_whole(const std::vector<ReplayedCluster>& clusters,
                                       const TracePart& part);

 private:
  class Batch;
  CapacityReplays(const Replay& replay, std::vector<sim::TraceRow> rows, Options options)
      : replay_(&replay), rows_(std::move(rows)), options_(std::move(options)) {}
  Result<std::vector<Tally>> run(Batch& batch);

  const Replay* replay_;
  std::vector<sim::TraceRow> rows_;
  Options options_;
};

}  // namespace heddle::cli
