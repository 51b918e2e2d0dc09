#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment.h"

namespace heddle::lab {

/// A figure that runs are compared by.
enum class Figure : std::uint8_t {
  kRequests,
  kFailed,
  kTtftMean,  ///< Times in seconds.
  kTtftP50,
  kTtftP95,
  kTtftP99,
  kTpotMean,
  kTpotP50,
  kTpotP95,
  kTpotP99,
  kLatencyP50,
  kLatencyP95,
  kLatencyP99,
  kAttainment,  ///< Part of requests that met both objectives of their model, 0 to 1; as below.
  kTtftAttainment,
  kTpotAttainment,
  kTokensPerSecond,
  kLoads,
  kPrewarms,  ///< Of the loads, those by forecast.
  kHits,      ///< First requests of a model that had none, for which it had been prewarmed; ...
  kMisses,    ///< ... or was not there.
  kEvictions,
  kLateSteps,     ///< Part of paced steps, 0 to 1.
  kSlowSteps,     ///< Paced steps that took 1.2 times as long or longer; ...
  kOverrunSteps,  ///< ... and worked or waited for a core for so long, instead of being woken late.
};
inline constexpr std::size_t kFigures = 25;

/// As in reports for machines: "ttft_p50_s".
[[nodiscard]] std::string_view key(Figure figure);
/// As in tables: "TTFT p50 [s]".
[[nodiscard]] std::string_view label(Figure figure);
/// Whether it is compared by differences, as parts of a whole are; else by ratios.
[[nodiscard]] bool is_part(Figure figure);

/// Of runs, by Figure: times and parts are those of all their requests together, counts are per
/// run. Failed requests met no objective and have no times. There is at least one run.
using Figures = std::array<double, kFigures>;
[[nodiscard]] Figures figures_of(const std::vector<const LabRun*>& runs,
                                 const std::vector<sim::Objective>& objectives);

/// A mean and where the true one lies in 95 of 100 cases, by Student's t. With one value nothing is
/// known of that: `low` and `high` are the mean.
struct Interval {
  double mean = 0, low = 0, high = 0;
};
[[nodiscard]] Interval mean_interval(const std::vector<double>& values);
/// Of values / others, pair by pair: the geometric mean, with an interval on the logarithms. Pairs
/// in which one is not positive are left out; without any pair all is 0.
[[nodiscard]] Interval ratio_interval(const std::vector<double>& values,
                                      const std::vector<double>& others);
/// Of values - others, pair by pair.
[[nodiscard]] Interval difference_interval(const std::vector<double>& values,
                                           const std::vector<double>& others);

/// All runs of one policy, by seed, and what they say together.
struct PolicySummary {
  std::string policy{};
  std::vector<const LabRun*> runs{};
  std::vector<Figures> figures{};  ///< By run.
  Figures together{};              ///< Of all runs.

  [[nodiscard]] std::vector<double> values(Figure figure) const;
};

/// In the order in which policies first occur.
[[nodiscard]] std::vector<PolicySummary> summarise(const std::vector<LabRun>& runs,
                                                   const std::vector<sim::Objective>& objectives);

/// How `policy` did against `base`, which had the same seeds: a ratio, or a difference of parts.
[[nodiscard]] Interval compare(const PolicySummary& policy,
                               const PolicySummary& base,
                               Figure figure);

/// Runs in which more than 1 % of the paced steps were late: their times say nothing. A line each.
[[nodiscard]] std::vector<std::string> invalid_runs(const std::vector<PolicySummary>& policies);

}  // namespace heddle::lab
