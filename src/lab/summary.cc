#include "lab/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "sim/quantiles.h"

namespace heddle::lab {

namespace {

constexpr double kLateMost = 0.01;

struct FigureText {
  std::string_view key{};
  std::string_view label{};
  bool part = false;
};
constexpr std::array<FigureText, kFigures> kTexts{{
    {"requests", "requests"},
    {"failed", "failed"},
    {"ttft_mean_s", "TTFT mean [s]"},
    {"ttft_p50_s", "TTFT p50 [s]"},
    {"ttft_p95_s", "TTFT p95 [s]"},
    {"ttft_p99_s", "TTFT p99 [s]"},
    {"tpot_mean_s", "TPOT mean [s]"},
    {"tpot_p50_s", "TPOT p50 [s]"},
    {"tpot_p95_s", "TPOT p95 [s]"},
    {"tpot_p99_s", "TPOT p99 [s]"},
    {"latency_p50_s", "whole answer p50 [s]"},
    {"latency_p95_s", "whole answer p95 [s]"},
    {"latency_p99_s", "whole answer p99 [s]"},
    {"attainment", "SLO attainment [%]", true},
    {"ttft_attainment", "  of TTFT [%]", true},
    {"tpot_attainment", "  of TPOT [%]", true},
    {"tokens_per_second", "tokens a second"},
    {"loads", "loads"},
    {"prewarms", "  by forecast"},
    {"hits", "starts on a prewarmed model"},
    {"misses", "starts on an absent one"},
    {"evictions", "evictions"},
    {"late_steps", "late steps [%]", true},
    {"slow_steps", "steps above 1.2 of their pace"},
    {"overrun_steps", "  by work or want of a core"},
}};

/// What a Student's t of so many degrees of freedom exceeds in 2.5 of 100 cases.
double student_t(std::size_t degrees) {
  constexpr std::array<double, 30> kTable{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                          2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                          2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                          2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  constexpr double kNormal = 1.960;
  return degrees <= kTable.size() ? kTable.at(degrees - 1) : kNormal;
}

/// Three percentiles from `first` on.
void put(Figures& figures, Figure first, const sim::Quantiles& quantiles) {
  const auto at = static_cast<std::size_t>(first);
  figures.at(at) = quantiles.at(0.50);
  figures.at(at + 1) = quantiles.at(0.95);
  figures.at(at + 2) = quantiles.at(0.99);
}

/// What requests took, and how many met their objectives.
struct Tally {
  sim::Quantiles ttft{};
  sim::Quantiles tpot{};
  sim::Quantiles latency{};
  double requests = 0;
  double failed = 0;
  double met_ttft = 0;
  double met_tpot = 0;
  double met_both = 0;

  void count(const bench::Row& row, const sim::Objective& objective) {
    ++requests;
    if (!row.error.empty()) {
      ++failed;
      return;
    }
    ttft.add(to_seconds(row.ttft()));
    latency.add(to_seconds(row.ended - row.due));
    const std::optional<Duration> between = row.tpot();
    if (between) {
      tpot.add(to_seconds(*between));
    }
    const bool in_time = objective.ttft == Duration{} || row.ttft() <= objective.ttft;
    const bool in_pace = objective.tpot == Duration{} || !between || *between <= objective.tpot;
    met_ttft += in_time ? 1 : 0;
    met_tpot += in_pace ? 1 : 0;
    met_both += in_time && in_pace ? 1 : 0;
  }
};

}  // namespace

std::string_view key(Figure figure) {
  return kTexts.at(static_cast<std::size_t>(figure)).key;
}

std::string_view label(Figure figure) {
  return kTexts.at(static_cast<std::size_t>(figure)).label;
}

bool is_part(Figure figure) {
  return kTexts.at(static_cast<std::size_t>(figure)).part;
}

Figures figures_of(const std::vector<const LabRun*>& runs,
                   const std::vector<sim::Objective>& objectives) {
  Tally tally;
  double tokens = 0;
  double span = 0;
  for (const LabRun* run : runs) {
    for (const bench::Row& row : run->rows) {
      tally.count(row, objectives.at(row.model));
      tokens += row.error.empty() ? static_cast<double>(row.completion_tokens) : 0;
    }
    span += to_seconds(run->span);
  }
  const auto counted = [&runs](std::string_view name, const SeriesLabels& labels = {}) {
    double total = 0;
    for (const LabRun* run : runs) {
      total += run->counted.total(name, labels);
    }
    return total / static_cast<double>(runs.size());
  };
  Figures figures{};
  const auto set = [&figures](Figure figure, double value) {
    figures.at(static_cast<std::size_t>(figure)) = value;
  };
  const auto of_requests = [&tally](double met) {
    return tally.requests > 0 ? met / tally.requests : 1;
  };
  set(Figure::kRequests, tally.requests / static_cast<double>(runs.size()));
  set(Figure::kFailed, tally.failed / static_cast<double>(runs.size()));
  set(Figure::kTtftMean, tally.ttft.distribution().mean);
  put(figures, Figure::kTtftP50, tally.ttft);
  set(Figure::kTpotMean, tally.tpot.distribution().mean);
  put(figures, Figure::kTpotP50, tally.tpot);
  put(figures, Figure::kLatencyP50, tally.latency);
  set(Figure::kAttainment, of_requests(tally.met_both));
  set(Figure::kTtftAttainment, of_requests(tally.met_ttft));
  set(Figure::kTpotAttainment, of_requests(tally.met_tpot));
  set(Figure::kTokensPerSecond, tokens / std::max(1e-9, span));
  set(Figure::kLoads, counted("heddle_model_loads_total"));
  set(Figure::kPrewarms, counted("heddle_model_loads_total", {{"reason", "forecast"}}));
  set(Figure::kHits, counted("heddle_model_starts_total", {{"kind", "hit"}}));
  set(Figure::kMisses, counted("heddle_model_starts_total", {{"kind", "miss"}}));
  set(Figure::kEvictions, counted("heddle_model_evictions_total"));
  const double steps = counted("heddle_worker_steps_total");
  const double late = counted("heddle_worker_late_steps_total");
  set(Figure::kLateSteps, steps > 0 ? late / steps : 0);
  set(Figure::kSlowSteps, counted("heddle_worker_slow_steps_total"));
  set(Figure::kOverrunSteps, counted("heddle_worker_overrun_steps_total"));
  return figures;
}

Interval mean_interval(const std::vector<double>& values) {
  if (values.empty()) {
    return {};
  }
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  const double mean = sum / count;
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  const double half = values.size() < 2
                          ? 0
                          : student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return {.mean = mean, .low = mean - half, .high = mean + half};
}

Interval ratio_interval(const std::vector<double>& values, const std::vector<double>& others) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < std::min(values.size(), others.size()); ++i) {
    if (values[i] > 0 && others[i] > 0) {
      logs.push_back(std::log(values[i] / others[i]));
    }
  }
  if (logs.empty()) {
    return {};
  }
  const Interval of_logs = mean_interval(logs);
  return {
      .mean = std::exp(of_logs.mean), .low = std::exp(of_logs.low), .high = std::exp(of_logs.high)};
}

Interval difference_interval(const std::vector<double>& values, const std::vector<double>& others) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(values.size(), others.size()); ++i) {
    differences.push_back(values[i] - others[i]);
  }
  return mean_interval(differences);
}

std::vector<double> PolicySummary::values(Figure figure) const {
  std::vector<double> all;
  all.reserve(figures.size());
  for (const Figures& each : figures) {
    all.push_back(each.at(static_cast<std::size_t>(figure)));
  }
  return all;
}

std::vector<PolicySummary> summarise(const std::vector<LabRun>& runs,
                                     const std::vector<sim::Objective>& objectives) {
  std::vector<PolicySummary> policies;
  for (const LabRun& run : runs) {
    auto found = std::find_if(policies.begin(), policies.end(), [&](const PolicySummary& each) {
      return each.policy == run.policy;
    });
    if (found == policies.end()) {
      found = policies.insert(policies.end(), PolicySummary{.policy = run.policy});
    }
    found->runs.push_back(&run);
    found->figures.push_back(figures_of({&run}, objectives));
  }
  for (PolicySummary& policy : policies) {
    policy.together = figures_of(policy.runs, objectives);
  }
  return policies;
}

Interval compare(const PolicySummary& policy, const PolicySummary& base, Figure figure) {
  return is_part(figure) ? difference_interval(policy.values(figure), base.values(figure))
                         : ratio_interval(policy.values(figure), base.values(figure));
}

std::vector<std::string> invalid_runs(const std::vector<PolicySummary>& policies) {
  std::vector<std::string> lines;
  for (const PolicySummary& policy : policies) {
    for (std::size_t i = 0; i < policy.runs.size(); ++i) {
      const double late = policy.figures[i].at(static_cast<std::size_t>(Figure::kLateSteps));
      if (late > kLateMost) {
        char text[160];
        std::snprintf(
            text,
            sizeof text,
            "%s, seed %lld: invalid, as %.1f %% of the paced steps were late (at most 1 %% "
            "may be): the machine was too busy",
            policy.policy.c_str(),
            static_cast<long long>(policy.runs[i]->seed),
            100 * late);
        lines.emplace_back(text);
      }
    }
  }
  return lines;
}

}  // namespace heddle::lab
