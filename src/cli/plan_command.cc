#include "cli/plan_command.h"

#include "base/units.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {
namespace {

std::string duration_problem(const std::string& text) {
  const Result<Duration> parsed = parse_duration(text);
  return parsed ? "" : parsed.error().message;
}

}  // namespace

void add_plan_command(CLI::App& app, PlanOptions& options, std::function<int()>& chosen) {
  CLI::App* verb =
      app.add_subcommand("plan", "Say how many servers of which kind a workload needs");
  verb->add_option("-t,--trace", options.trace.file, "Requests, as heddle simulate reads them")
      ->required();
  verb->add_option("-c,--hardware",
                   options.hardware,
                   "Kinds of servers (YAML, as heddle simulate's clusters; counts do not matter, "
                   "price: 2.5 is an hour's)")
      ->required();
  verb->add_option("-m,--models", options.models, "What the trace's models are (YAML)")->required();
  verb->add_option("-a,--attainment",
                   options.target,
                   "Percent of all requests that are to meet their objectives")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  verb->add_option("--most", options.most, "Servers of a kind at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
      ->capture_default_str();
  verb->add_option("-p,--policy", options.policy, "A policy set of heddle simulate")
      ->capture_default_str();
  verb->add_option("--perf", options.perf, "Folder of performance constants; else data/perf");
  verb->add_option("--speed", options.trace.speed, "Arrivals come so many times as fast")
      ->check(CLI::PositiveNumber);
  verb->add_option("--default-model", options.trace.model, "Label of rows that have none");
  verb->add_option_function<std::string>(
          "--until",
          [&](const std::string& text) { options.trace.until = *parse_duration(text); },
          "Leave out what arrives later than this")
      ->check(duration_problem);
  verb->add_option("--initial",
                   options.initial,
                   "Where weights are at first: empty, in the store alone; warm, in host memory "
                   "of every server as far as they fit")
      ->check(CLI::IsMember({"empty", "warm"}))
      ->capture_default_str();
  verb->add_option_function<std::string>(
          "--warmup",
          [&](const std::string& text) { options.warmup = *parse_duration(text); },
          "Serve what arrives earlier than this, and leave it out of the numbers")
      ->check(duration_problem);
  verb->add_option("--json", options.json, "Write all numbers here; - is stdout");
  verb->add_option("--html", options.html, "Write a page with pictures here");
  verb->callback([&] { chosen = [&] { return plan(options); }; });
}

}  // namespace heddle::cli
