#include "sim/report.h"

#include <algorithm>
#include <array>

#include "base/units.h"
#include "sim/print.h"
#include "spec/json_writer.h"

namespace heddle::sim {
namespace {

std::string percent(double part) {
  return print("%.2f %%", 100 * part);
}

std::string count(std::int64_t value) {
  return std::to_string(value);
}

std::string four(const Quantiles& quantiles, double unit) {
  const Distribution times = quantiles.distribution();
  return format_seconds(times.mean * unit) + " / " + format_seconds(times.p50 * unit) + " / " +
         format_seconds(times.p95 * unit) + " / " + format_seconds(times.p99 * unit);
}

double gib_seconds(const Results& results, LeaseKind kind) {
  return results.gib_seconds().at(static_cast<std::size_t>(kind));
}

/// Part of instance starts that found their weights on the GPU; of none, all.
double hit_ratio(const WorldCounts& counts) {
  const std::int64_t starts = counts.hits + counts.attaches + counts.misses;
  return starts == 0 ? 1 : static_cast<double>(counts.hits) / static_cast<double>(starts);
}

struct Line {
  const char* label;
  std::string (*value)(const Run&);
};

constexpr double kGiga = 1e9;

double mean_gpus(const Results& results) {
  return results.gpu_seconds() / std::max(1e-9, to_seconds(results.span()));
}

const std::array kLines{
    Line{"requests per second",
         [](const Run& run) { return print("%.3g", run.requests_per_second); }},
    Line{"requests", [](const Run& run) { return count(run.results->counts().arrived); }},
    Line{"  refused / unserved",
         [](const Run& run) {
           const WorldCounts& counts = run.results->counts();
           return count(counts.refused) + " / " + count(counts.unserved);
         }},
    Line{"TTFT mean/p50/p95/p99 [s]", [](const Run& run) { return four(run.results->ttft(), 1); }},
    Line{"TPOT mean/p50/p95/p99 [ms]",
         [](const Run& run) { return four(run.results->tpot(), 1000); }},
    Line{"SLO attainment", [](const Run& run) { return percent(run.results->attainment()); }},
    Line{"  of TTFT / of TPOT",
         [](const Run& run) {
           return percent(run.results->ttft_attainment()) + " / " +
                  percent(run.results->tpot_attainment());
         }},
    Line{"tokens per second",
         [](const Run& run) {
           return print("%.0f",
                        static_cast<double>(run.results->counts().tokens) /
                            std::max(1e-9, to_seconds(run.results->span())));
         }},
    Line{"GPUs used, mean (ever) of",
         [](const Run& run) {
           return print("%.2f (%zu) of %zu",
                        mean_gpus(*run.results),
                        run.results->gpus_touched(),
                        run.results->gpu_pages().size());
         }},
    Line{"GPU-seconds", [](const Run& run) { return print("%.0f", run.results->gpu_seconds()); }},
};

const std::array kLinesAfterMemory{
    Line{"loads (prewarms)",
         [](const Run& run) {
           const WorldCounts& counts = run.results->counts();
           return count(counts.starts) + " (" + count(counts.prewarms) + ")";
         }},
    Line{"starts hit/attached/cold",
         [](const Run& run) {
           const WorldCounts& counts = run.results->counts();
           return count(counts.hits) + " / " + count(counts.attaches) + " / " +
                  count(counts.misses);
         }},
    Line{"hit ratio", [](const Run& run) { return percent(hit_ratio(run.results->counts())); }},
    Line{"evictions", [](const Run& run) { return count(run.results->counts().evictions); }},
    Line{"preempted / resubmitted",
         [](const Run& run) {
           const WorldCounts& counts = run.results->counts();
           return count(counts.preemptions) + " / " + count(counts.resubmissions);
         }},
    Line{"fetched / loaded / KV moved [GB]",
         [](const Run& run) {
           const WorldCounts& counts = run.results->counts();
           return print("%.0f / %.0f / %.0f",
                        counts.bytes_fetched / kGiga,
                        counts.bytes_loaded / kGiga,
                        counts.bytes_kv_moved / kGiga);
         }},
    Line{"prediction error",
         [](const Run& run) {
           const std::optional<double> error = run.results->forecast_error();
           return error ? percent(*error) : std::string("-");
         }},
};

/// Columns of the table of many runs.
const std::array kColumns{
    Line{"rps", [](const Run& run) { return print("%.3g", run.requests_per_second); }},
    Line{"SLO", [](const Run& run) { return percent(run.results->attainment()); }},
    Line{"TTFT p50", [](const Run& run) { return format_seconds(run.results->ttft().at(0.50)); }},
    Line{"p99 [s]", [](const Run& run) { return format_seconds(run.results->ttft().at(0.99)); }},
    Line{"TPOT p50",
         [](const Run& run) { return format_seconds(1000 * run.results->tpot().at(0.50)); }},
    Line{"p99 [ms]",
         [](const Run& run) { return format_seconds(1000 * run.results->tpot().at(0.99)); }},
    Line{"GPUs", [](const Run& run) { return print("%.2f", mean_gpus(*run.results)); }},
    Line{"GPU-seconds", [](const Run& run) { return print("%.0f", run.results->gpu_seconds()); }},
    Line{"hits", [](const Run& run) { return percent(hit_ratio(run.results->counts())); }},
    Line{"evictions", [](const Run& run) { return count(run.results->counts().evictions); }},
    Line{"refused", [](const Run& run) { return count(run.results->counts().refused); }},
    Line{"unserved", [](const Run& run) { return count(run.results->counts().unserved); }},
};
constexpr std::size_t kRunsAsColumns = 5;

using Table = std::vector<std::vector<std::string>>;

Table table_by_rows(const std::vector<Run>& runs) {
  Table rows{{"policy"}};
  for (const Line& line : kColumns) {
    rows[0].emplace_back(line.label);
  }
  for (const Run& run : runs) {
    std::vector<std::string> row{run.policy};
    for (const Line& line : kColumns) {
      row.push_back(line.value(run));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_line(Table& rows, const std::vector<Run>& runs, const Line& line) {
  std::vector<std::string> row{line.label};
  for (const Run& run : runs) {
    row.push_back(line.value(run));
  }
  rows.push_back(std::move(row));
}

/// A row for each kind of lease that any run had.
void add_memory(Table& rows, const std::vector<Run>& runs) {
  for (std::size_t kind = 0; kind < ledger::kLeaseKinds; ++kind) {
    double all = 0;
    std::vector<std::string> row{"GiB-seconds " +
                                 std::string(ledger::name(static_cast<LeaseKind>(kind)))};
    for (const Run& run : runs) {
      const double value = gib_seconds(*run.results, static_cast<LeaseKind>(kind));
      row.push_back(print("%.0f", value));
      all += value;
    }
    if (all > 0) {
      rows.push_back(std::move(row));
    }
  }
}

void write(spec::JsonWriter& json, const Quantiles& quantiles) {
  const Distribution times = quantiles.distribution();
  json.begin_object().key("count").integer(times.count);
  json.key("mean").number(times.mean).key("p50").number(times.p50).key("p95").number(times.p95);
  json.key("p99").number(times.p99).key("max").number(times.most).end_object();
}

void write_counts(spec::JsonWriter& json, const WorldCounts& counts) {
  const std::array<std::pair<const char*, std::int64_t>, 16> all{{
      {"arrived", counts.arrived},
      {"completed", counts.completed},
      {"refused", counts.refused},
      {"unserved", counts.unserved},
      {"starts", counts.starts},
      {"hits", counts.hits},
      {"attaches", counts.attaches},
      {"misses", counts.misses},
      {"prewarms", counts.prewarms},
      {"evictions", counts.evictions},
      {"preemptions", counts.preemptions},
      {"resubmissions", counts.resubmissions},
      {"merges", counts.merges},
      {"failures", counts.failures},
      {"events", counts.events},
      {"tokens", counts.tokens},
  }};
  json.key("counts").begin_object();
  for (const auto& [name, value] : all) {
    json.key(name).integer(value);
  }
  json.key("bytes_fetched").number(counts.bytes_fetched);
  json.key("bytes_loaded").number(counts.bytes_loaded);
  json.key("bytes_kv_moved").number(counts.bytes_kv_moved).end_object();
}

void write(spec::JsonWriter& json, const ReportHead& head, const Run& run) {
  const Results& results = *run.results;
  json.begin_object().key("policy").string(run.policy);
  json.key("requests_per_second").number(run.requests_per_second);
  json.key("ttft_s");
  write(json, results.ttft());
  json.key("tpot_s");
  write(json, results.tpot());
  json.key("attainment").number(results.attainment());
  json.key("ttft_attainment").number(results.ttft_attainment());
  json.key("tpot_attainment").number(results.tpot_attainment());
  json.key("hit_ratio").number(hit_ratio(results.counts()));
  if (results.forecast_error()) {
    json.key("forecast_error").number(*results.forecast_error());
  }
  write_counts(json, results.counts());
  json.key("gpus")
      .integer(results.gpu_pages().size())
      .key("gpus_touched")
      .integer(results.gpus_touched());
  json.key("gpu_seconds").number(results.gpu_seconds());
  json.key("span_s").number(to_seconds(results.span()));
  json.key("end").string(name(results.end().kind)).key("unserved").begin_array();
  for (const Unserved& each : results.end().unserved) {
    const std::size_t model = each.model.value();
    json.begin_object().key("model").string(model < head.models.size() ? head.models[model] : "");
    json.key("requests").integer(each.requests);
    json.key("first").integer(static_cast<std::int64_t>(each.first.value()));
    json.key("why").string(each.why).end_object();
  }
  json.end_array();
  json.key("gib_seconds").begin_object();
  for (std::size_t kind = 0; kind < ledger::kLeaseKinds; ++kind) {
    if (results.gib_seconds().at(kind) > 0) {
      json.key(ledger::name(static_cast<LeaseKind>(kind))).number(results.gib_seconds().at(kind));
    }
  }
  json.end_object().key("actions").begin_array();
  for (const auto& [act, times] : results.acts()) {
    json.begin_object().key("verb").string(act.first).key("reason").string(act.second);
    json.key("count").integer(times).end_object();
  }
  json.end_array().key("models").begin_array();
  for (std::size_t i = 0; i < results.models().size(); ++i) {
    const Results::PerModel& model = results.models()[i];
    json.begin_object().key("name").string(i < head.models.size() ? head.models[i] : "");
    json.key("requests").integer(model.requests).key("completed").integer(model.completed);
    json.key("cold").integer(model.cold).key("ttft_met").integer(model.ttft_met);
    json.key("tpot_met").integer(model.tpot_met).key("both_met").integer(model.both_met);
    json.end_object();
  }
  json.end_array().key("digest").string(
      print("%016llx", static_cast<unsigned long long>(results.digest())));
  json.end_object();
}

}  // namespace

std::string format_seconds(double value) {
  if (value <= 0) {
    return "0";
  }
  return value >= 100 ? print("%.0f", value) : print("%.3g", value);
}

std::vector<std::vector<std::string>> report_table(const std::vector<Run>& runs) {
  if (runs.size() > kRunsAsColumns) {
    return table_by_rows(runs);
  }
  Table rows{{""}};
  for (const Run& run : runs) {
    rows[0].push_back(run.policy);
  }
  for (const Line& line : kLines) {
    add_line(rows, runs, line);
  }
  add_memory(rows, runs);
  for (const Line& line : kLinesAfterMemory) {
    add_line(rows, runs, line);
  }
  return rows;
}

std::string report_json(const ReportHead& head, const std::vector<Run>& runs) {
  spec::JsonWriter json;
  json.begin_object().key("title").string(head.title).key("workload").string(head.workload);
  json.key("cluster")
      .string(head.cluster)
      .key("command")
      .string(head.command)
      .key("problems")
      .begin_array();
  for (const std::string& problem : head.problems) {
    json.string(problem);
  }
  json.end_array().key("runs").begin_array();
  for (const Run& run : runs) {
    write(json, head, run);
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

std::string csv_head() {
  return "request,model,arrival_s,input_tokens,output_tokens,ttft_s,tpot_s,latency_s,preemptions,"
         "cold,outcome\n";
}

std::string csv_row(const RequestRow& row, const std::string& model) {
  std::string text = std::to_string(row.number.value()) + "," + model + ",";
  text += print("%.6f,", to_seconds(row.arrival.time_since_epoch()));
  text += count(row.input_tokens) + "," + count(row.output_tokens) + ",";
  text += row.first_token ? print("%.6f", to_seconds(*row.first_token - row.arrival)) : "";
  text += ",";
  if (row.finished && row.output_tokens > 1) {
    text += print(
        "%.6f",
        to_seconds(*row.finished - *row.first_token) / static_cast<double>(row.output_tokens - 1));
  }
  text += ",";
  text += row.finished ? print("%.6f", to_seconds(*row.finished - row.arrival)) : "";
  text += "," + count(row.preemptions) + (row.cold ? ",1," : ",0,");
  return text + std::string(name(row.end)) + "\n";
}

}  // namespace heddle::sim
