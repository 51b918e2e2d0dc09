#include "cli/replay.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "base/units.h"
#include "cli/configured_models.h"
#include "cli/simulate_files.h"
#include "history/traffic.h"
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

/// The cluster file; that which `heddle calibrate` wrote beside the constants where none is named.
Result<std::string> find_cluster(const std::string& named,
                                 const std::string& folder,
                                 const PerfData& perf) {
  std::error_code none;
  const std::filesystem::path measured = std::filesystem::path(folder) / "cluster.yaml";
  if (!named.empty()) {
    return named;
  }
  if (std::filesystem::exists(measured, none)) {
    return measured.string();
  }
  std::string known;
  for (const sim::GpuProfile& gpu : perf.gpus) {
    known += (known.empty() ? "" : ", ") + gpu.name;
  }
  return Error{.code = Code::kInvalidArgument,
               .message =
                   "say on which servers: --hardware FILE, with entries such as\n"
                   "  hosts:\n"
                   "    - {name: h100x8, gpu: H100-80G, gpus: 8, cache: 400GB, nic: 12GB/s, "
                   "pcie: 50GB/s, platform: h100, price: 20}\n"
                   "GPUs that " +
                   folder + " knows: " + known +
                   "; heddle calibrate --out DIR measures a device of this machine, which "
                   "--perf DIR then takes"};
}

/// "ttft=5s,tpot=100ms" for all models.
Result<void> set_objectives(const std::string& text, std::vector<ModelRule>& rules) {
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const Result<Duration> time =
        parse_duration(equals == std::string::npos ? std::string_view()
                                                   : std::string_view(part).substr(equals + 1));
    if (!time || *time <= Duration{} || (name != "ttft" && name != "tpot")) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "--slo \"" + text + "\": want such as ttft=5s,tpot=100ms"};
    }
    for (ModelRule& rule : rules) {
      (name == "ttft" ? rule.spec.slo_ttft : rule.spec.slo_tpot) = *time;
    }
  }
  return {};
}

/// Rules of the model file, then those of the configuration.
Result<std::vector<ModelRule>> load_rules(const ReplayOptions& options, const PerfData& perf) {
  if (options.models.empty() && options.config.empty()) {
    return Error{.code = Code::kInvalidArgument,
                 .message =
                     "say what the models are: --config heddle.yaml, a server's "
                     "configuration, or --models FILE"};
  }
  std::vector<ModelRule> rules;
  if (!options.models.empty()) {
    Result<std::vector<ModelRule>> read = load_model_rules(options.models, perf);
    if (!read) {
      return read;
    }
    rules = std::move(read).value();
  }
  if (!options.config.empty()) {
    Result<ConfiguredRules> configured = configured_rules(options.config, perf);
    if (!configured) {
      return configured.error();
    }
    for (const std::string& note : configured->notes) {
      std::fprintf(stderr, "heddle: %s\n", note.c_str());
    }
    std::ranges::move(configured->rules, std::back_inserter(rules));
  }
  if (const Result<void> set = set_objectives(options.slo, rules); !set) {
    return set.error();
  }
  return rules;
}

/// The requests, drawn where they come from a history.
Result<void> take_requests(const ReplayOptions& options, Replay& replay) {
  replay.trace = options.trace;
  if (options.histories.empty() == options.trace.file.empty()) {
    return Error{.code = Code::kInvalidArgument,
                 .message =
                     "say which requests there are: either --trace FILE, or --from-history "
                     "DIR, the dataDir of a server"};
  }
  if (options.histories.empty()) {
    return {};
  }
  const Result<history::TrafficHistory> history = history::read_traffic(options.histories);
  if (!history) {
    return history.error();
  }
  for (const std::string& each : options.histories) {
    replay.trace.file += (replay.trace.file.empty() ? "" : ", ") + each;
  }
  Result<DrawnTrace> drawn = draw_trace(*history, options.draw);
  if (!drawn) {
    return Error{.code = drawn.error().code,
                 .message = replay.trace.file + ": " + drawn.error().message};
  }
  for (const std::string& problem : drawn->problems) {
    std::fprintf(
        stderr, "heddle: %s is left out: %s\n", replay.trace.file.c_str(), problem.c_str());
  }
  replay.origin = drawn->origin;
  replay.trace.drawn = std::make_shared<const std::vector<sim::OtlpRow>>(std::move(drawn->rows));
  return {};
}

}  // namespace

std::string workload_words(const ReplayOptions& options) {
  std::string words;
  const auto add = [&words](bool given, const std::string& text) {
    words += given ? (words.empty() ? "" : " ") + text : "";
  };
  add(!options.trace.file.empty(), "--trace " + options.trace.file);
  for (const std::string& each : options.histories) {
    add(true, "--from-history " + each);
  }
  add(options.draw.last > Duration{}, "--last " + format_duration(options.draw.last));
  add(!options.histories.empty(), "--draws " + std::to_string(options.draw.draws));
  add(options.draw.seed != DrawOptions{}.seed, "--seed " + std::to_string(options.draw.seed));
  add(!options.models.empty(), "--models " + options.models);
  add(!options.config.empty(), "--config " + options.config);
  add(!options.slo.empty(), "--slo " + options.slo);
  return words;
}

Result<Replay> load_replay(const ReplayOptions& options) {
  const Result<std::string> folder = find_perf_folder(options.perf, options.cluster);
  if (!folder) {
    return folder.error();
  }
  const Result<PerfData> perf = load_perf_data(*folder);
  if (!perf) {
    return perf.error();
  }
  const Result<std::string> cluster_file = find_cluster(options.cluster, *folder, *perf);
  if (!cluster_file) {
    return cluster_file.error();
  }
  Result<sim::ClusterSpec> cluster = load_cluster(*cluster_file, *perf);
  if (!cluster) {
    return cluster.error();
  }
  const Result<std::vector<ModelRule>> rules = load_rules(options, *perf);
  if (!rules) {
    return rules.error();
  }
  Replay replay{.cluster = std::move(cluster).value()};
  if (const Result<void> taken = take_requests(options, replay); !taken) {
    return taken.error();
  }
  Result<TraceSummary> summary = survey_trace(replay.trace, *rules);
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
  replay.summary = std::move(summary).value();
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
  return sim::make_plane(parsed->first, {.demand = summary.demand, .flags = parsed->second});
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
