#include "cli/plan.h"

#include <algorithm>
#include <cstdio>

#include "cli/capacity_plan.h"
#include "cli/capacity_report.h"
#include "cli/terminal.h"
#include "sim/print.h"

namespace heddle::cli {
namespace {

Result<CapacityQuestion> question_of(const PlanOptions& options) {
  Result<Replay> replay = load_replay(options.replay);
  if (!replay) {
    return replay.error();
  }
  if (const Result<void> some = check_warmup(options.replay, replay->summary.span); !some) {
    return some.error();
  }
  return CapacityQuestion{.trace = options.replay.trace,
                          .replay = std::move(replay).value(),
                          .policy = options.policy,
                          .target = options.target / 100,
                          .most = options.most,
                          .warmup = options.replay.warmup};
}

std::string command_of_plan(const PlanOptions& options) {
  return "heddle plan --trace " + options.replay.trace.file + " --hardware " +
         options.replay.cluster + " --models " + options.replay.models + " --policy " +
         options.policy +
         sim::print(" --attainment %.6g --most %lld",
                    options.target,
                    static_cast<long long>(options.most));
}

}  // namespace

int plan(const PlanOptions& options) {
  const Result<CapacityQuestion> question = question_of(options);
  if (!question) {
    return fail(question.error());
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
                             : write_report(options.json, capacity_json(*question, *plans));
  if (written && !options.html.empty()) {
    written =
        write_report(options.html, capacity_html(*question, *plans, command_of_plan(options)));
  }
  if (!written) {
    return fail(written.error());
  }
  const bool enough =
      std::ranges::any_of(*plans, [](const KindPlan& each) { return each.least.has_value(); });
  return enough ? 0 : kNeverEnoughStatus;
}

}  // namespace heddle::cli
