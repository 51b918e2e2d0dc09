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
  CLI::Option* trace =
      verb.add_option("-t,--trace",
                      options.trace.file,
                      "Requests: CSV, JSON lines, OTLP spans or the log of heddle, plain or gzip");
  verb.add_option(
          "--from-history",
          options.histories,
          "Or: what servers remember of their load, dataDir or history.db of each; how many "
          "come in a window, and their mean lengths, are as they were, their times and "
          "single lengths are drawn")
      ->excludes(trace);
  verb.add_option_function<std::string>(
          "--last",
          [&](const std::string& text) { options.draw.last = *parse_duration(text); },
          "Of a history, only so much at its end")
      ->check(check_duration);
  verb.add_option(
          "--draws", options.draw.draws, "How often a history is drawn, one behind the other")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  verb.add_option("--seed", options.draw.seed, "Of all that is drawn")->capture_default_str();
  verb.add_option("-m,--models", options.models, "What the models are (YAML)");
  verb.add_option(
      "--config",
      options.config,
      "A server's heddle.yaml: its models, and their slo, are looked at where they lie");
  verb.add_option("--slo", options.slo, "Objectives of all models, as ttft=5s,tpot=100ms");
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
