#include "cli/plan.h"

#include <algorithm>
#include <cstdio>

#include "cli/capacity_plan.h"
#include "cli/capacity_report.h"
#include "cli/terminal.h"
#include "sim/print.h"

#include <sched.h>

namespace heddle::cli {
namespace {

/// That this process may run on.
std::size_t cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::size_t>(CPU_COUNT(&set))
                                                       : 1;
}

/// A replay of a large cluster takes up to a GB, so no more than a few run at once.
std::size_t threads_of(const PlanOptions& options) {
  constexpr std::size_t kMost = 8;
  return options.threads > 0 ? options.threads : std::clamp<std::size_t>(cores(), 1, kMost);
}

/// "h100, 17 to 31 servers: 45 %, about 20 s left".
std::string progress_line(const PlanProgress& now) {
  std::string line = std::string(now.kind) + ", " + std::to_string(now.least);
  if (now.most > now.least) {
    line += " to " + std::to_string(now.most);
  }
  line += sim::print(" servers: %.0f %%", 100 * now.how.part);
  if (now.how.remaining > std::chrono::seconds(1)) {
    line += sim::print(", at most %.0f s left", to_seconds(now.how.remaining));
  }
  return line;
}

Result<CapacityQuestion> question_of(const PlanOptions& options) {
  Result<Replay> replay = load_replay(options.replay);
  if (!replay) {
    return replay.error();
  }
  if (const Result<void> some = check_warmup(options.replay, replay->summary.span); !some) {
    return some.error();
  }
  if (std::ranges::none_of(replay->summary.models, [](const sim::ModelSpec& model) {
        return model.slo_ttft > Duration{} || model.slo_tpot > Duration{};
      })) {
    return Error{.code = Code::kInvalidArgument,
                 .message =
                     "no model has an objective, so one server would always be enough: give "
                     "--slo ttft=5s,tpot=100ms, slo: in the configuration, or ttft: and "
                     "tpot: in the model file"};
  }
  const TraceOptions trace = replay->trace;
  const std::string origin = replay->origin;
  return CapacityQuestion{.trace = trace,
                          .replay = std::move(replay).value(),
                          .policy = options.policy,
                          .target = options.target / 100,
                          .most = options.most,
                          .warmup = options.replay.warmup,
                          .sample = options.sample,
                          .seed = options.replay.draw.seed,
                          .threads = threads_of(options),
                          .origin = origin};
}

std::string command_of_plan(const PlanOptions& options) {
  return "heddle plan " + workload_words(options.replay) +
         (options.replay.cluster.empty() ? "" : " --hardware " + options.replay.cluster) +
         (options.replay.perf.empty() ? "" : " --perf " + options.replay.perf) + " --policy " +
         options.policy +
         sim::print(" --attainment %.6g --most %lld --sample %lld",
                    options.target,
                    static_cast<long long>(options.most),
                    static_cast<long long>(options.sample));
}

}  // namespace

int plan(const PlanOptions& options) {
  const Result<CapacityQuestion> question = question_of(options);
  if (!question) {
    return fail(question.error());
  }
  const bool bar = stderr_is_terminal();
  const auto plans = plan_capacity(*question, [&](const PlanProgress& now) {
    if (bar) {
      std::fprintf(stderr, "\r\033[K%s", progress_line(now).c_str());
    }
  });
  if (bar) {
    std::fputs("\r\033[K", stderr);
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
  const bool enough = std::ranges::any_of(
      plans->kinds, [](const KindPlan& each) { return each.least.has_value(); });
  return enough ? 0 : kNeverEnoughStatus;
}

}  // namespace heddle::cli
