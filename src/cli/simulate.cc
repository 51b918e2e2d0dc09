#include "cli/simulate.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/rng.h"
#include "cli/terminal.h"
#include "sim/faults.h"
#include "sim/report.h"

namespace heddle::cli {

namespace {

/// Times at which the pages of every GPU are looked at; the results thin them out.
constexpr std::int64_t kSamples = 800;

/// A run that reports point to.
struct FinishedRun {
  std::string policy{};
  double requests_per_second = 0;
  std::unique_ptr<sim::Results> results{};
};

/// A number > 0, and nothing else.
std::optional<double> positive(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value > 0 ? std::optional(value) : std::nullopt;
}

Result<std::vector<sim::FaultPlan>> plan_faults(const std::string& text, const Replay& inputs) {
  std::size_t gpus = 0;
  for (const sim::HostSpec& host : inputs.cluster.hosts) {
    gpus += static_cast<std::size_t>(host.gpus);
  }
  const std::size_t hosts = inputs.cluster.hosts.size();
  unsigned long long seed = 0;
  unsigned long long count = 0;
  if (std::sscanf(text.c_str(), "random:%llu:%llu", &seed, &count) == 2) {
    return sim::random_faults(Rng(seed), count, inputs.summary.span, gpus, hosts);
  }
  if (text.empty()) {
    return std::vector<sim::FaultPlan>{};
  }
  std::ifstream stream(text);
  std::stringstream script;
  if (!stream || !(script << stream.rdbuf())) {
    return Error{.code = Code::kNotFound, .message = text + ": cannot be read"};
  }
  return sim::parse_faults(script.str(), text, gpus, hosts);
}

/// Says on stderr which requests a run did not serve, and why. False: the policy was stuck.
bool tell_unserved(const std::string& policy, const sim::RunEnd& end, const Replay& inputs) {
  constexpr std::size_t kMost = 20;
  if (end.unserved.empty()) {
    return true;
  }
  const double at = to_seconds(end.at.time_since_epoch());
  const char* how = end.kind == sim::RunEnd::Kind::kNothingHappens
                        ? "nothing more happened, and requests waited"
                    : end.kind == sim::RunEnd::Kind::kGoesRoundInRings
                        ? "events repeated, and no request got any further"
                        : "the run was cut off, 2 hours after the last arrival";
  std::fprintf(stderr, "heddle: policy %s: at %.1f s %s:\n", policy.c_str(), at, how);
  for (std::size_t i = 0; i < std::min(kMost, end.unserved.size()); ++i) {
    const sim::Unserved& each = end.unserved[i];
    std::fprintf(stderr,
                 "  %s: %lld requests unserved, request %llu the first: %s\n",
                 inputs.summary.models[each.model.value()].name.c_str(),
                 static_cast<long long>(each.requests),
                 static_cast<unsigned long long>(each.first.value()),
                 each.why.c_str());
  }
  if (end.unserved.size() > kMost) {
    std::fprintf(stderr, "  and %zu models more\n", end.unserved.size() - kMost);
  }
  return !end.stuck();
}

Result<FinishedRun> run_one(const SimulateOptions& options,
                            const Replay& inputs,
                            const std::string& policy,
                            const TraceOptions& trace,
                            std::ofstream* csv) {
  const auto plane = make_policy(policy, inputs.summary);
  if (!plane) {
    return plane.error();
  }
  const bool bar = stderr_is_terminal();
  const auto source = open_trace(trace, inputs.summary.models, [&](double part) {
    if (bar) {
      show_bar(policy, part);
    }
  });
  if (!source) {
    return source.error();
  }
  const Result<std::vector<sim::FaultPlan>> faults = plan_faults(options.faults, inputs);
  if (!faults) {
    return faults.error();
  }
  FinishedRun run{.policy = policy};
  sim::Results::Options keep{.warmup = options.replay.warmup, .timeline = !options.html.empty()};
  if (options.explain) {
    keep.explain = RequestId(*options.explain);
  }
  if (csv != nullptr) {
    keep.each = [&](const sim::RequestRow& row) {
      *csv << sim::csv_row(row, inputs.summary.models[row.model.value()].name);
    };
  }
  run.results = std::make_unique<sim::Results>(keep);
  const double speed = trace.speed / options.replay.trace.speed;
  run.requests_per_second = inputs.summary.requests_per_second() * speed;
  const auto span = static_cast<double>(inputs.summary.span.count()) / speed;
  if (const Result<void> some =
          check_warmup(options.replay, Duration(static_cast<std::int64_t>(span)));
      !some) {
    return some.error();
  }
  sim::World world(inputs.cluster,
                   inputs.summary.models,
                   **plane,
                   *run.results,
                   {.sample_period = options.html.empty()
                                         ? Duration{}
                                         : Duration(1 + static_cast<std::int64_t>(span) / kSamples),
                    .check_every_event = options.check,
                    .in_host_memory = inputs.in_host_memory,
                    .warmup = options.replay.warmup});
  sim::inject(world, *faults);
  world.run(**source);
  run.results->finish(world);
  if (bar) {
    show_bar(policy, std::nullopt);
  }
  return run;
}

/// Every policy at every rate of the sweep, or each once.
Result<std::vector<FinishedRun>> run_all(const SimulateOptions& options, const Replay& inputs) {
  const double own_rate = inputs.summary.requests_per_second();
  std::vector<double> speeds{1};
  if (!options.sweep.empty()) {
    const Result<std::vector<double>> swept = parse_sweep(options.sweep);
    if (!swept) {
      return swept.error();
    }
    if (own_rate == 0) {
      return Error{.code = Code::kInvalidArgument,
                   .message = inputs.trace.file +
                              ": all requests come at once, so there is no rate to sweep"};
    }
    speeds.clear();
    for (const double rate : *swept) {
      speeds.push_back(rate / own_rate);
    }
  }
  std::ofstream csv;
  if (!options.csv.empty()) {
    csv.open(options.csv, std::ios::binary);
    csv << sim::csv_head();
    if (!csv) {
      return Error{.code = Code::kUnavailable, .message = options.csv + ": cannot be written"};
    }
  }
  std::vector<FinishedRun> runs;
  for (const std::string& policy : options.policies) {
    for (const double speed : speeds) {
      TraceOptions trace = inputs.trace;
      trace.speed *= speed;
      Result<FinishedRun> run =
          run_one(options, inputs, policy, trace, options.csv.empty() ? nullptr : &csv);
      if (!run) {
        return run.error();
      }
      runs.push_back(std::move(run).value());
    }
  }
  return runs;
}

/// A command that gives the same report.
std::string command_of(const SimulateOptions& options) {
  const TraceOptions& trace = options.replay.trace;
  std::string text = "heddle simulate " + workload_words(options.replay) + " --cluster " +
                     options.replay.cluster + " --policy ";
  for (std::size_t i = 0; i < options.policies.size(); ++i) {
    text += (i == 0 ? "" : ",") + options.policies[i];
  }
  const auto add = [&text](bool given, const char* name, const std::string& value) {
    text += given ? std::string(" ") + name + " " + value : "";
  };
  add(!options.sweep.empty(), "--sweep", options.sweep);
  add(trace.speed != 1, "--speed", sim::format_seconds(trace.speed));
  add(trace.until > Duration{},
      "--until",
      std::to_string(trace.until / std::chrono::seconds(1)) + "s");
  add(trace.most_input > 0, "--cut-input", std::to_string(trace.most_input));
  add(trace.least_output > 0, "--least-output", std::to_string(trace.least_output));
  add(!trace.model.empty(), "--default-model", trace.model);
  add(options.replay.initial != ReplayOptions{}.initial, "--initial", options.replay.initial);
  add(options.replay.warmup > Duration{},
      "--warmup",
      std::to_string(options.replay.warmup / std::chrono::milliseconds(1)) + "ms");
  add(!options.faults.empty(), "--faults", options.faults);
  add(!options.replay.perf.empty(), "--perf", options.replay.perf);
  return text;
}

sim::ReportHead head_of(const SimulateOptions& options, const Replay& inputs) {
  sim::ReportHead head{.title = "heddle simulate",
                       .workload = inputs.trace.file + ": " + std::to_string(inputs.summary.rows) +
                                   " requests of " + std::to_string(inputs.summary.models.size()) +
                                   " models" + (inputs.origin.empty() ? "" : ", " + inputs.origin),
                       .cluster = options.replay.cluster + ": " +
                                  std::to_string(inputs.cluster.hosts.size()) + " servers",
                       .command = command_of(options),
                       .problems = inputs.summary.problems};
  for (const sim::ModelSpec& model : inputs.summary.models) {
    head.models.push_back(model.name);
    head.objectives.push_back({.ttft = model.slo_ttft, .tpot = model.slo_tpot});
  }
  return head;
}

int report(const SimulateOptions& options,
           const Replay& inputs,
           const std::vector<FinishedRun>& finished) {
  const sim::ReportHead head = head_of(options, inputs);
  std::vector<sim::Run> runs;
  for (const FinishedRun& run : finished) {
    runs.push_back({.policy = run.policy,
                    .requests_per_second = run.requests_per_second,
                    .results = run.results.get()});
  }
  if (options.explain) {
    for (const sim::Run& run : runs) {
      std::printf("%s%s%s",
                  runs.size() > 1 ? run.policy.c_str() : "",
                  runs.size() > 1 ? "\n\n" : "",
                  run.results->explanation()->tell(head.models).c_str());
    }
    return 0;
  }
  if (options.json != "-") {
    std::fputs(format_table(sim::report_table(runs)).c_str(), stdout);
  }
  if (const Result<void> written = write_report(options.json, sim::report_json(head, runs));
      !written) {
    return fail(written.error());
  }
  if (options.html.empty()) {
    return 0;
  }
  const Result<void> written = write_report(options.html, sim::report_html(head, runs));
  return written ? 0 : fail(written.error());
}

}  // namespace

Result<std::vector<double>> parse_sweep(std::string_view text) {
  constexpr double kMost = 1000;
  constexpr std::string_view kHead = "rps=";
  const std::size_t dots = text.find("..");
  const std::size_t colon = text.find(':');
  const Error wrong{
      .code = Code::kInvalidArgument,
      .message = "sweep \"" + std::string(text) + "\": want such as rps=5..30 or rps=5..30:2.5"};
  if (!text.starts_with(kHead) || dots == std::string_view::npos || colon < dots) {
    return wrong;
  }
  const auto from = positive(text.substr(kHead.size(), dots - kHead.size()));
  const auto to = positive(text.substr(dots + 2, colon - dots - 2));
  const auto step = colon == std::string_view::npos
                        ? (from && to ? std::optional((*to - *from) / 5) : std::nullopt)
                        : positive(text.substr(colon + 1));
  if (!from || !to || !step || *to <= *from || (*to - *from) / *step > kMost) {
    return wrong;
  }
  std::vector<double> rates;
  for (int i = 0; *from + i * *step <= *to * (1 + 1e-9); ++i) {
    rates.push_back(*from + i * *step);
  }
  return rates;
}

std::vector<std::string> split_policies(const std::string& text) {
  std::vector<std::string> policies;
  std::stringstream pieces(text);
  std::string piece;
  while (std::getline(pieces, piece, ',')) {
    const bool flag = piece.find('=') < piece.find(':');
    if (flag && !policies.empty()) {
      policies.back() += "," + piece;
    } else {
      policies.push_back(piece);
    }
  }
  return policies;
}

int simulate(const SimulateOptions& options) {
  const Result<Replay> loaded = load_replay(options.replay);
  if (!loaded) {
    return fail(loaded.error());
  }
  const Replay& inputs = *loaded;
  const Result<std::vector<FinishedRun>> runs = run_all(options, inputs);
  if (!runs) {
    return fail(runs.error());
  }
  bool all_ended = true;
  for (const FinishedRun& run : *runs) {
    all_ended = tell_unserved(run.policy, run.results->end(), inputs) && all_ended;
  }
  const int status = report(options, inputs, *runs);
  return status == 0 && !all_ended ? kStuckStatus : status;
}

}  // namespace heddle::cli
