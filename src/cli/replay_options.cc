#include "cli/replay_options.h"

#include "base/units.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {
namespace {

/// "1h" and the like.
std::string check_duration(const std::string& text) {
  const Result<Duration> parsed = parse_duration(text);
  return parsed ? "" : parsed.error().message;
}

}  // namespace

void add_replay_options(CLI::App& verb, ReplayOptions& options) {
  verb.add_option("-t,--trace", options.trace.file, "Requests: CSV or JSON lines, plain or gzip")
      ->required();
  verb.add_option("-m,--models", options.models, "What the trace's models are (YAML)")->required();
  verb.add_option("--perf", options.perf, "Folder of performance constants; else data/perf");
  verb.add_option("--speed", options.trace.speed, "Arrivals come so many times as fast")
      ->check(CLI::PositiveNumber);
  verb.add_option("--default-model", options.trace.model, "Label of rows that have none");
  verb.add_option_function<std::string>(
          "--until",
          [&](const std::string& text) { options.trace.until = *parse_duration(text); },
          "Leave out what arrives later than this")
      ->check(check_duration);
  verb.add_option("--initial",
                  options.initial,
                  "Where weights are at first, for every policy: empty, in the store alone; warm, "
                  "in host memory of every server as far as they fit")
      ->check(CLI::IsMember({"empty", "warm"}))
      ->capture_default_str();
  verb.add_option_function<std::string>(
          "--warmup",
          [&](const std::string& text) { options.warmup = *parse_duration(text); },
          "Serve what arrives earlier than this, and leave it out of the numbers")
      ->check(check_duration);
  verb.add_option("--cut-input", options.trace.most_input, "Cut inputs to so many tokens");
  verb.add_option("--least-output", options.trace.least_output, "Stretch shorter outputs");
}

}  // namespace heddle::cli
