#include "cli/replay.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "cli/simulate_files.h"
#include "sim/planes/planes.h"
#include "sim/report.h"

namespace heddle::cli {
namespace {

/// "name:flag=value,flag=value" apart.
Result<std::pair<std::string, std::map<std::string, std::string>>> parse_policy(
    const std::string& text) {
  std::pair<std::string, std::map<std::string, std::string>> parsed;
  const std::size_t colon = text.find(':');
  parsed.first = text.substr(0, colon);
  std::stringstream flags(colon == std::string::npos ? "" : text.substr(colon + 1));
  std::string flag;
  while (std::getline(flags, flag, ',')) {
    const std::size_t equals = flag.find('=');
    if (equals == std::string::npos) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "policy \"" + text + "\": want flags as name:flag=value,flag=value"};
    }
    parsed.second[flag.substr(0, equals)] = flag.substr(equals + 1);
  }
  return parsed;
}

/// All models.
std::vector<ModelId> most_asked_first(const TraceSummary& summary) {
  std::vector<ModelId> models;
  for (std::size_t i = 0; i < summary.models.size(); ++i) {
    models.emplace_back(i);
  }
  const auto rate = [&](ModelId id) { return summary.demand[id.value()].requests_per_second; };
  std::sort(models.begin(), models.end(), [&](ModelId a, ModelId b) {
    return std::pair(-rate(a), a) < std::pair(-rate(b), b);
  });
  return models;
}

}  // namespace

Result<Replay> load_replay(const ReplayOptions& options) {
  const Result<std::string> folder = find_perf_folder(options.perf, options.cluster);
  if (!folder) {
    return folder.error();
  }
  const Result<PerfData> perf = load_perf_data(*folder);
  if (!perf) {
    return perf.error();
  }
  Result<sim::ClusterSpec> cluster = load_cluster(options.cluster, *perf);
  if (!cluster) {
    return cluster.error();
  }
  const Result<std::vector<ModelRule>> rules = load_model_rules(options.models, *perf);
  if (!rules) {
    return rules.error();
  }
  Result<TraceSummary> summary = survey_trace(options.trace, *rules);
  if (!summary) {
    return summary.error();
  }
  for (const std::string& problem : summary->problems) {
    std::fprintf(stderr, "heddle: %s\n", problem.c_str());
  }
  if (summary->bad_rows > 0) {
    std::fprintf(stderr,
                 "heddle: %lld rows are left out, %lld are replayed\n",
                 static_cast<long long>(summary->bad_rows),
                 static_cast<long long>(summary->rows));
  }
  Replay replay{.cluster = std::move(cluster).value(), .summary = std::move(summary).value()};
  replay.most_asked_first = most_asked_first(replay.summary);
  if (options.initial == "warm") {
    replay.in_host_memory = replay.most_asked_first;
  }
  return replay;
}

Result<void> check_warmup(const ReplayOptions& options, Duration span) {
  return options.warmup <= span ? Result<void>()
                                : Error{.code = Code::kInvalidArgument,
                                        .message = "--warmup: the last request comes at " +
                                                   sim::format_seconds(to_seconds(span)) +
                                                   " s, so that none would count"};
}

Result<std::unique_ptr<sim::ControlPlane>> make_policy(const std::string& text,
                                                       const TraceSummary& summary) {
  const auto parsed = parse_policy(text);
  if (!parsed) {
    return parsed.error();
  }
  sim::PlaneInputs known{.demand = summary.demand, .flags = parsed->second};
  for (const sim::ModelSpec& model : summary.models) {
    if (model.external) {
      known.external.push_back(model.name);
    }
  }
  return sim::make_plane(parsed->first, known);
}

Result<void> write_report(const std::string& file, const std::string& text) {
  if (file.empty()) {
    return {};
  }
  if (file == "-") {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  std::ofstream stream(file, std::ios::binary);
  if (!(stream << text) || !stream.flush()) {
    return Error{.code = Code::kUnavailable, .message = file + ": cannot be written"};
  }
  return {};
}

}  // namespace heddle::cli
