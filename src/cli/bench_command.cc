#include "cli/bench_command.h"

#include "base/units.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {

namespace {

std::string check_duration(const std::string& text) {
  const Result<Duration> parsed = parse_duration(text);
  return parsed ? "" : parsed.error().message;
}

void add_duration(CLI::App& verb,
                  const std::string& name,
                  Duration& duration,
                  const std::string& about) {
  verb.add_option_function<std::string>(
          name, [&duration](const std::string& text) { duration = *parse_duration(text); }, about)
      ->check(check_duration);
}

}  // namespace

void add_bench_command(CLI::App& app, BenchOptions& options, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("bench", "Send load to a server and measure how it takes it");
  verb->add_option("--url", options.url, "The API: http(s)://host:port/v1")
      ->envname("HEDDLE_HOST")
      ->capture_default_str();
  verb->add_option("--api-key", options.api_key, "What opens it")->envname("HEDDLE_API_KEY");
  verb->add_option("--api", options.api, "Which endpoint")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str();
  verb->add_option("-m,--model", options.models, "Models, each with a weight: a=3 b")
      ->required()
      ->delimiter(',');
  CLI::Option* trace = verb->add_option(
      "-t,--trace", options.trace.file, "Open loop: a trace as `heddle simulate` reads them");
  CLI::Option* rate =
      verb->add_option("-r,--rate", options.rate, "Open loop: Poisson arrivals, so many a second")
          ->check(CLI::PositiveNumber)
          ->excludes(trace);
  verb->add_option("-c,--concurrency", options.concurrency, "Closed loop: so many at once")
      ->check(CLI::PositiveNumber)
      ->excludes(trace)
      ->excludes(rate);
  verb->add_option("-n,--requests", options.requests, "Stop after so many")
      ->check(CLI::PositiveNumber);
  add_duration(*verb, "-d,--duration", options.duration, "Begin nothing later than this");
  add_duration(*verb, "--timeout", options.timeout, "Give a request up after this (10m)");
  verb->add_option("-i,--input-tokens", options.input_tokens, "Of a prompt: N or A..B")
      ->capture_default_str();
  verb->add_option("-o,--output-tokens", options.output_tokens, "Of an answer, at most: N or A..B")
      ->capture_default_str();
  verb->add_flag("--ignore-eos", options.ignore_eos, "Ask for all output tokens (an extension)");
  verb->add_option("--speed", options.trace.speed, "A trace's arrivals come so many times as fast")
      ->check(CLI::PositiveNumber);
  verb->add_option(
      "--cut-input", options.trace.most_input, "Cut a trace's inputs to so many tokens");
  verb->add_option("--seed", options.seed, "Of what is drawn")->capture_default_str();
  verb->add_option("--slo", options.slo, "What is good: ttft=200ms,tpot=50ms");
  verb->add_option("--json", options.json, "Write all numbers here; - is stdout");
  verb->add_option("--html", options.html, "Write a page with pictures here");
  verb->callback([&] { chosen = [&] { return bench(options); }; });
}

}  // namespace heddle::cli
