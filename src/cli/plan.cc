#include "cli/plan.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <tuple>

#include "cli/capacity_plan.h"
#include "cli/capacity_report.h"
#include "cli/simulate_files.h"
#include "cli/terminal.h"
#include "sim/print.h"

namespace heddle::cli {
namespace {

/// Servers of a file, each kind once: how many there are of it is what is asked.
std::vector<sim::HostSpec> kinds_of(const sim::ClusterSpec& cluster) {
  std::vector<sim::HostSpec> kinds;
  for (const sim::HostSpec& host : cluster.hosts) {
    const auto same = [&](const sim::HostSpec& kind) {
      return std::tie(kind.name, kind.gpu.name, kind.gpus, kind.links.nic) ==
             std::tie(host.name, host.gpu.name, host.gpus, host.links.nic);
    };
    if (std::ranges::none_of(kinds, same)) {
      kinds.push_back(host);
    }
  }
  return kinds;
}

Result<CapacityQuestion> question_of(const PlanOptions& options) {
  const Result<std::string> folder = find_perf_folder(options.perf, options.hardware);
  if (!folder) {
    return folder.error();
  }
  const Result<PerfData> perf = load_perf_data(*folder);
  if (!perf) {
    return perf.error();
  }
  const Result<sim::ClusterSpec> cluster = load_cluster(options.hardware, *perf);
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
  if (options.warmup > summary->span) {
    return Error{.code = Code::kInvalidArgument,
                 .message = sim::print("--warmup: the last request comes at %.0f s, so that none "
                                       "would count",
                                       to_seconds(summary->span))};
  }
  return CapacityQuestion{.trace = options.trace,
                          .summary = std::move(summary).value(),
                          .kinds = kinds_of(*cluster),
                          .page_bytes = cluster->page_bytes,
                          .policy = options.policy,
                          .target = options.target / 100,
                          .most = options.most,
                          .warm = options.initial == "warm",
                          .warmup = options.warmup};
}

std::string command_of_plan(const PlanOptions& options) {
  return "heddle plan --trace " + options.trace.file + " --hardware " + options.hardware +
         " --models " + options.models + " --policy " + options.policy +
         sim::print(" --attainment %.6g --most %lld",
                    options.target,
                    static_cast<long long>(options.most));
}

Result<void> write_out(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  std::ofstream stream(file, std::ios::binary);
  if (!file.empty() && (!(stream << text) || !stream.flush())) {
    return Error{.code = Code::kUnavailable, .message = file + ": cannot be written"};
  }
  return {};
}

}  // namespace

int plan(const PlanOptions& options) {
  const Result<CapacityQuestion> question = question_of(options);
  if (!question) {
    return fail(question.error());
  }
  for (const std::string& problem : question->summary.problems) {
    std::fprintf(stderr, "heddle: %s\n", problem.c_str());
  }
  const bool bar = stderr_is_terminal();
  const auto plans =
      plan_capacity(*question, [&](const sim::HostSpec& server, std::int64_t servers) {
        if (bar) {
          std::fprintf(stderr,
                       "\r\033[K%lld times %s",
                       static_cast<long long>(servers),
                       (server.name.empty() ? server.gpu.name : server.name).c_str());
        }
      });
  if (bar) {
    show_bar("", std::nullopt);
  }
  if (!plans) {
    return fail(plans.error());
  }
  if (options.json != "-") {
    std::fputs(capacity_text(*question, *plans).c_str(), stdout);
  }
  Result<void> written = options.json.empty()
                             ? Result<void>()
                             : write_out(options.json, capacity_json(*question, *plans));
  if (written && !options.html.empty()) {
    written = write_out(options.html, capacity_html(*question, *plans, command_of_plan(options)));
  }
  if (!written) {
    return fail(written.error());
  }
  const bool enough =
      std::ranges::any_of(*plans, [](const KindPlan& each) { return each.least.has_value(); });
  return enough ? 0 : kNeverEnoughStatus;
}

}  // namespace heddle::cli
