#include "lab/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "base/units.h"
#include "lab/answers.h"
#include "ledger/ledger.h"
#include "sim/report.h"
#include "spec/json_writer.h"

namespace heddle::lab {

namespace {

using Table = std::vector<std::vector<std::string>>;

constexpr std::size_t kErrorsShown = 3;  ///< Kinds of failures of a policy.

/// Three significant digits, as times have them.
std::string digits(double value) {
  return value < 0 ? "-" + sim::format_seconds(-value) : sim::format_seconds(value);
}

sim::RequestRow row_of(const bench::Row& row, std::uint64_t number, Duration offset) {
  const Instant arrival(offset + row.due);
  sim::RequestRow made{.number = RequestId(number),
                       .model = ModelId(row.model),
                       .arrival = arrival,
                       .input_tokens = row.prompt_tokens,
                       .output_tokens = row.completion_tokens};
  if (row.error.empty()) {
    made.first_token = arrival + row.ttft();
    made.finished = std::max(*made.first_token, arrival + (row.last - row.due));
  } else {
    made.end = sim::RequestEnd::kRefused;
  }
  return made;
}

/// What of devices was used between two moments.
void add_use(const LabFile& lab,
             const Counters& counters,
             double passed,
             sim::Results::Ending& ending) {
  constexpr double kGib = 1 << 30;
  for (const LabDevice& device : devices_of(lab.policies.front())) {
    const SeriesLabels labels{{"device", device.name}};
    const bool used =
        counters.total("heddle_pages_free", labels) < counters.total("heddle_pages_total", labels);
    ending.gpu_seconds += used ? passed : 0;
    for (std::size_t kind = 0; kind < ledger::kLeaseKinds; ++kind) {
      const std::string name(ledger::name(static_cast<ledger::LeaseKind>(kind)));
      const double pages =
          counters.total("heddle_pages_reserved", {{"device", device.name}, {"kind", name}});
      ending.gib_seconds.at(kind) +=
          pages * static_cast<double>(device.config->page) / kGib * passed;
    }
  }
}

/// Loads and evictions fall between the moments at which they were counted.
void add_moments(const LabFile& lab,
                 const LabRun& run,
                 Duration offset,
                 sim::Results& results,
                 sim::Results::Ending& ending) {
  for (std::size_t i = 1; i < run.moments.size(); ++i) {
    const auto& [at, counters] = run.moments[i];
    if (at < lab.warmup) {
      continue;
    }
    const Counters grown = counters.since(run.moments[i - 1].second);
    results.count(Instant(offset + at),
                  static_cast<std::int32_t>(grown.total("heddle_model_loads_total")),
                  0,
                  static_cast<std::int32_t>(grown.total("heddle_model_evictions_total")));
    add_use(lab, counters, to_seconds(at - run.moments[i - 1].first), ending);
  }
}

/// The runs of a policy, one after the other.
struct Joined {
  std::unique_ptr<sim::Results> results = std::make_unique<sim::Results>();
  double requests_per_second = 0;
};

Joined join(const LabFile& lab, const PolicySummary& policy) {
  const std::vector<sim::Objective> held_to = objectives(lab);
  Joined joined;
  sim::Results::Ending ending{.models = held_to.size()};
  Duration offset = -lab.warmup;
  std::uint64_t number = 0;
  for (const LabRun* run : policy.runs) {
    for (const bench::Row& row : run->rows) {
      joined.results->add(row_of(row, number++, offset), held_to.at(row.model));
      ending.counts.completed += row.error.empty() ? 1 : 0;
      ending.counts.refused += row.error.empty() ? 0 : 1;
      ending.counts.tokens += row.completion_tokens;
    }
    add_moments(lab, *run, offset, *joined.results, ending);
    const auto counted = [run](std::string_view name, const SeriesLabels& labels = {}) {
      return static_cast<std::int64_t>(run->counted.total(name, labels));
    };
    ending.counts.starts += counted("heddle_model_loads_total");
    ending.counts.prewarms += counted("heddle_model_loads_total", {{"reason", "forecast"}});
    ending.counts.hits += counted("heddle_model_starts_total", {{"kind", "hit"}}) +
                          counted("heddle_model_starts_total", {{"kind", "warm"}});
    ending.counts.attaches += counted("heddle_model_starts_total", {{"kind", "attach"}});
    ending.counts.misses += counted("heddle_model_starts_total", {{"kind", "miss"}});
    ending.counts.evictions += counted("heddle_model_evictions_total");
    ending.gpu_pages = run->device_pages;
    offset += run->span;
  }
  ending.counts.arrived = static_cast<std::int64_t>(number);
  ending.gpus_touched = ending.gpu_pages.size();
  ending.span = offset + lab.warmup;
  joined.requests_per_second =
      static_cast<double>(number) / std::max(1e-9, to_seconds(ending.span));
  joined.results->finish(ending);
  return joined;
}

/// The simulator's report of these runs.
struct SimReport {
  sim::ReportHead head{};
  std::vector<Joined> joined{};
  std::vector<sim::Run> runs{};
};

std::string describe_devices(const LabFile& lab) {
  std::string text;
  for (const LabDevice& device : devices_of(lab.policies.front())) {
    const config::DeviceConfig& config = *device.config;
    text += (text.empty() ? "" : ", ") + device.name + " with " + format_bytes(config.memory);
    text += config.load_bandwidth > 0
                ? " behind " + format_rate(static_cast<double>(config.load_bandwidth))
                : "";
  }
  return text;
}

SimReport sim_report(const LabFile& lab,
                     const std::vector<PolicySummary>& policies,
                     const std::string& command) {
  SimReport report;
  report.head = {.title = "heddle lab",
                 .workload = lab.file + ": " + std::to_string(model_names(lab).size()) +
                             " models, " + std::to_string(policies.front().runs.size()) +
                             " seeds, one after the other",
                 .cluster = describe_devices(lab),
                 .command = command,
                 .models = model_names(lab),
                 .objectives = objectives(lab),
                 .problems = report_notes(policies)};
  report.head.tables.push_back({.title = "Means over seeds, and half of their 95 % intervals",
                                .rows = figure_table(policies)});
  if (policies.size() > 1) {
    report.head.tables.push_back(
        {.title = "Against the first: ratios and differences, with their 95 % intervals",
         .rows = comparison_table(policies)});
  }
  for (const PolicySummary& policy : policies) {
    report.joined.push_back(join(lab, policy));
    report.runs.push_back({.policy = policy.policy,
                           .requests_per_second = report.joined.back().requests_per_second,
                           .results = report.joined.back().results.get()});
  }
  return report;
}

void write(spec::JsonWriter& json, const Interval& interval) {
  json.begin_object().key("mean").number(interval.mean).key("low").number(interval.low);
  json.key("high").number(interval.high).end_object();
}

void write(spec::JsonWriter& json, const LabRun& run, const Figures& figures) {
  json.begin_object().key("seed").integer(run.seed);
  for (std::size_t i = 0; i < kFigures; ++i) {
    json.key(key(static_cast<Figure>(i))).number(figures.at(i));
  }
  json.key("counters").begin_object();
  for (const auto& [name, series] : run.counted.series()) {
    if (name.starts_with("heddle_")) {
      json.key(name).number(run.counted.total(name));
    }
  }
  json.end_object();
  json.key("loads_by_reason").begin_object();
  for (const auto& [reason, times] : run.counted.by("heddle_model_loads_total", "reason")) {
    json.key(reason).number(times);
  }
  json.end_object().end_object();
}

}  // namespace

Table figure_table(const std::vector<PolicySummary>& policies) {
  Table rows{{""}};
  for (const PolicySummary& policy : policies) {
    rows[0].push_back(policy.policy);
  }
  for (std::size_t i = 0; i < kFigures; ++i) {
    const auto figure = static_cast<Figure>(i);
    const double unit = is_part(figure) ? 100 : 1;
    std::vector<std::string> row{std::string(label(figure))};
    for (const PolicySummary& policy : policies) {
      const Interval interval = mean_interval(policy.values(figure));
      const bool spread = policy.runs.size() > 1;
      row.push_back(digits(interval.mean * unit) +
                    (spread ? " ± " + digits((interval.high - interval.mean) * unit) : ""));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Table comparison_table(const std::vector<PolicySummary>& policies) {
  if (policies.size() < 2) {
    return {};
  }
  const PolicySummary& base = policies.front();
  Table rows{{"against " + base.policy}};
  for (std::size_t k = 1; k < policies.size(); ++k) {
    rows[0].push_back(policies[k].policy);
  }
  for (const Figure figure : {Figure::kTtftP50,
                              Figure::kTtftP95,
                              Figure::kTtftP99,
                              Figure::kTpotP50,
                              Figure::kTpotP99,
                              Figure::kLatencyP50,
                              Figure::kLatencyP99,
                              Figure::kAttainment,
                              Figure::kTokensPerSecond,
                              Figure::kLoads,
                              Figure::kEvictions}) {
    const double unit = is_part(figure) ? 100 : 1;
    const std::string_view sign = is_part(figure) ? "" : "×";
    std::vector<std::string> row{std::string(label(figure))};
    for (std::size_t k = 1; k < policies.size(); ++k) {
      const Interval interval = compare(policies[k], base, figure);
      const bool unknown = !is_part(figure) && interval.mean == 0;
      std::string text = unknown ? "-" : std::string(sign) + digits(interval.mean * unit);
      if (base.runs.size() > 1 && !unknown) {
        text += " (" + digits(interval.low * unit) + " to " + digits(interval.high * unit) + ")";
      }
      row.push_back(std::move(text));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Table prediction_table(const std::vector<PolicySummary>& measured,
                       const std::vector<PolicySummary>& predicted) {
  Table rows{{"all requests", "", "measured", "predicted", "predicted against it"}};
  for (std::size_t i = 0; i < measured.size(); ++i) {
    for (const Figure figure : {Figure::kTtftP50,
                                Figure::kTtftP95,
                                Figure::kTtftP99,
                                Figure::kTpotP50,
                                Figure::kAttainment,
                                Figure::kLoads}) {
      const double unit = is_part(figure) ? 100 : 1;
      const double seen = measured[i].together.at(static_cast<std::size_t>(figure)) * unit;
      const double told = predicted.at(i).together.at(static_cast<std::size_t>(figure)) * unit;
      rows.push_back({measured[i].policy,
                      std::string(label(figure)),
                      digits(seen),
                      digits(told),
                      is_part(figure) ? digits(told - seen)
                      : seen > 0      ? "×" + digits(told / seen)
                                      : "-"});
    }
  }
  return rows;
}

std::vector<std::string> report_notes(const std::vector<PolicySummary>& policies) {
  std::vector<std::string> notes = invalid_runs(policies);
  for (const Agreement& agreement : compare_answers(policies)) {
    if (agreement.differing > 0) {
      notes.push_back(describe(agreement, policies.front().policy));
    }
  }
  for (const PolicySummary& policy : policies) {
    std::map<std::string, std::int64_t> errors;
    for (const LabRun* run : policy.runs) {
      for (const bench::Row& row : run->rows) {
        errors[row.error] += row.error.empty() ? 0 : 1;
      }
    }
    std::vector<std::pair<std::int64_t, std::string>> kinds;
    for (const auto& [error, times] : errors) {
      if (times > 0) {
        kinds.emplace_back(-times, error);
      }
    }
    std::sort(kinds.begin(), kinds.end());
    for (std::size_t i = 0; i < std::min(kinds.size(), kErrorsShown); ++i) {
      notes.push_back(policy.policy + ": " + std::to_string(-kinds[i].first) +
                      " failed: " + kinds[i].second);
    }
    if (kinds.size() > kErrorsShown) {
      notes.push_back(policy.policy + ": others failed in " +
                      std::to_string(kinds.size() - kErrorsShown) + " further ways");
    }
  }
  return notes;
}

std::string report_json(const LabFile& lab,
                        const std::vector<PolicySummary>& policies,
                        const std::string& command) {
  spec::JsonWriter json;
  json.begin_object().key("file").string(lab.file).key("command").string(command);
  json.key("scale").number(lab.scale).key("warmup_s").number(to_seconds(lab.warmup));
  json.key("valid").boolean(invalid_runs(policies).empty());
  json.key("notes").begin_array();
  for (const std::string& note : report_notes(policies)) {
    json.string(note);
  }
  json.end_array();
  if (lab.check) {
    json.key("answers").begin_array();
    for (const Agreement& agreement : compare_answers(policies)) {
      json.begin_object().key("policy").string(agreement.policy);
      json.key("compared").integer(agreement.compared);
      json.key("differing").integer(agreement.differing).end_object();
    }
    json.end_array();
  }
  json.key("policies").begin_array();
  for (const PolicySummary& policy : policies) {
    json.begin_object().key("policy").string(policy.policy).key("runs").begin_array();
    for (std::size_t i = 0; i < policy.runs.size(); ++i) {
      write(json, *policy.runs[i], policy.figures[i]);
    }
    json.end_array().key("over_seeds").begin_object();
    for (std::size_t i = 0; i < kFigures; ++i) {
      const auto figure = static_cast<Figure>(i);
      json.key(key(figure));
      write(json, mean_interval(policy.values(figure)));
    }
    json.end_object().key("all_requests").begin_object();
    for (std::size_t i = 0; i < kFigures; ++i) {
      json.key(key(static_cast<Figure>(i))).number(policy.together.at(i));
    }
    json.end_object().key("against_first").begin_object();
    for (std::size_t i = 0; i < kFigures; ++i) {
      const auto figure = static_cast<Figure>(i);
      json.key(key(figure));
      write(json, compare(policy, policies.front(), figure));
    }
    json.end_object().end_object();
  }
  json.end_array();
  const SimReport report = sim_report(lab, policies, command);
  json.key("report").json(sim::report_json(report.head, report.runs)).end_object();
  return std::move(json).take() + "\n";
}

std::string report_html(const LabFile& lab,
                        const std::vector<PolicySummary>& policies,
                        const std::string& command) {
  const SimReport report = sim_report(lab, policies, command);
  return sim::report_html(report.head, report.runs);
}

std::string report_csv(const LabFile& lab, const std::vector<PolicySummary>& policies) {
  const std::vector<std::string> names = model_names(lab);
  std::string text = "policy,seed," + sim::csv_head();
  for (const PolicySummary& policy : policies) {
    for (const LabRun* run : policy.runs) {
      for (std::size_t i = 0; i < run->rows.size(); ++i) {
        text += policy.policy + "," + std::to_string(run->seed) + "," +
                sim::csv_row(row_of(run->rows[i], i, Duration{}), names.at(run->rows[i].model));
      }
    }
  }
  return text;
}

}  // namespace heddle::lab
