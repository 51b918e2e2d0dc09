#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "sim/cluster.h"

namespace heddle::cli {

/// Requests of a trace that are replayed by themselves, on a cluster that is new to them.
struct Stretch {
  std::size_t begin = 0;  ///< The first of them, among the trace's.
  std::size_t end = 0;    ///< Behind the last.
  Instant from{};         ///< When its clock begins; requests before `counted` warm it up.
  Instant counted{};      ///< What comes from here on counts.
  Duration before{};      ///< Of counted time, in the stretches that are earlier in the trace.
};

/// What is replayed of a trace.
struct TracePart {
  std::vector<Stretch> stretches{};  ///< In an order in which the first few are of all of the day.
  std::int64_t requests = 0;         ///< That count.
  Duration counted{};                ///< Time that counts.
  bool whole = true;                 ///< All of the trace but its warm-up counts.
};

/// The whole trace as one stretch, of which what comes before `warmup` does not count.
/// @param rows  By arrival, at least one.
[[nodiscard]] TracePart whole_trace(const std::vector<sim::TraceRow>& rows, Duration warmup);

/// Stretches from all of the trace, with about `most` requests together: of each the first half
/// warms the cluster up, and the second counts. The time behind `warmup` is cut into equal cells,
/// and of each one stretch is drawn, so that all times of the day have a part. A trace of at most
/// `most` requests, or `most` of 0, is whole_trace().
[[nodiscard]] TracePart draw_stretches(const std::vector<sim::TraceRow>& rows,
                                       Duration warmup,
                                       std::int64_t most,
                                       std::uint64_t seed);

/// What arrives until `until` of the first `stretches` of a part.
[[nodiscard]] TracePart beginning_of(const TracePart& part,
                                     const std::vector<sim::TraceRow>& rows,
                                     std::size_t stretches,
                                     Instant until);

/// Requests of one stretch, by a clock that begins with it.
class StretchSource final : public sim::RequestSource {
 public:
  /// Both outlive it.
  StretchSource(const std::vector<sim::TraceRow>& rows, const Stretch& stretch)
      : rows_(rows), stretch_(stretch), next_(stretch.begin) {}
  bool next(sim::TraceRow& row) override;
  /// When the last that it gave arrived, by the trace's clock.
  [[nodiscard]] Instant last() const;
  [[nodiscard]] std::size_t given() const { return next_ - stretch_.begin; }

 private:
  const std::vector<sim::TraceRow>& rows_;
  const Stretch& stretch_;
  std::size_t next_;
};

}  // namespace heddle::cli
