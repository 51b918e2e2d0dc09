#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/descriptor_limit.h"
#include "bench/endpoint.h"
#include "bench/report.h"
#include "bench/run.h"
#include "cli/bench_command.h"
#include "cli/terminal.h"

namespace heddle::cli {

namespace {

constexpr std::int64_t kRequests = 100;  ///< Where nothing else ends a run.

Error invalid(std::string message) {
  return {.code = Code::kInvalidArgument, .message = std::move(message)};
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

/// "128" or "64..256".
Result<bench::TokenRange> parse_range(const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto least = number<std::int64_t>(text.substr(0, dots));
  const auto most = dots == std::string::npos ? least : number<std::int64_t>(text.substr(dots + 2));
  if (!least || !most || *least < 1 || *most < *least) {
    return invalid("\"" + text + "\" is no number of tokens; want such as 128 or 64..256");
  }
  return bench::TokenRange{.least = *least, .most = *most};
}

struct Mix {
  std::vector<std::string> models{};
  std::vector<double> weights{};
};

/// "a=3", "b": names with the share of each.
Result<Mix> parse_mix(const std::vector<std::string>& texts) {
  Mix mix;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    const std::optional<double> weight =
        equals == std::string::npos ? 1.0 : number<double>(text.substr(equals + 1));
    if (!weight || !(*weight > 0) || equals == 0 || text.empty()) {
      return invalid("--model: \"" + text + "\" is no model with a weight; want name or name=3");
    }
    mix.models.push_back(text.substr(0, equals));
    mix.weights.push_back(*weight);
  }
  return mix;
}

/// The requests of a trace. Its labels are the models of that name; others are given to the models
/// in turn, in the order of their names.
class TraceShots final : public bench::ShotSource {
 public:
  static Result<std::unique_ptr<bench::ShotSource>> open(const TraceOptions& options,
                                                         const Mix& mix) {
    const Result<TraceSummary> summary = survey_trace(options, {ModelRule{.label = "*"}});
    if (!summary) {
      return summary.error();
    }
    for (const std::string& problem : summary->problems) {
      std::fprintf(stderr, "heddle: %s\n", printable(problem).c_str());
    }
    auto rows = open_trace(options, summary->models, nullptr);
    if (!rows) {
      return rows.error();
    }
    std::vector<std::size_t> models;
    std::size_t others = 0;
    for (const sim::ModelSpec& label : summary->models) {
      const auto named = std::find(mix.models.begin(), mix.models.end(), label.name);
      models.push_back(named != mix.models.end()
                           ? static_cast<std::size_t>(named - mix.models.begin())
                           : others++ % mix.models.size());
    }
    return std::unique_ptr<bench::ShotSource>(
        new TraceShots(std::move(rows).value(), std::move(models)));
  }

  bool next(bench::Shot& shot) override {
    sim::TraceRow row;
    if (!rows_->next(row)) {
      return false;
    }
    shot = {.at = row.arrival.time_since_epoch(),
            .model = models_.at(row.model.value()),
            .input_tokens = row.input_tokens,
            .output_tokens = row.output_tokens};
    return true;
  }

 private:
  TraceShots(std::unique_ptr<sim::RequestSource> rows, std::vector<std::size_t> models)
      : rows_(std::move(rows)), models_(std::move(models)) {}

  std::unique_ptr<sim::RequestSource> rows_;
  std::vector<std::size_t> models_;  ///< Of the trace's labels, by index.
};

Result<std::unique_ptr<bench::ShotSource>> open_shots(const BenchOptions& options, const Mix& mix) {
  if (!options.trace.file.empty()) {
    return TraceShots::open(options.trace, mix);
  }
  const Result<bench::TokenRange> input = parse_range(options.input_tokens);
  if (!input) {
    return input.error();
  }
  const Result<bench::TokenRange> output = parse_range(options.output_tokens);
  if (!output) {
    return output.error();
  }
  return bench::draw_load({.weights = mix.weights,
                           .input = *input,
                           .output = *output,
                           .rate = options.rate,
                           .seed = options.seed});
}

Result<bench::RunOptions> run_options(const BenchOptions& options, const Mix& mix) {
  Result<HttpAddress> endpoint = bench::parse_endpoint(options.url);
  if (!endpoint) {
    return endpoint.error();
  }
  const Result<bench::Slo> slo = bench::parse_slo(options.slo);
  if (!slo) {
    return Error{.code = slo.error().code, .message = "--slo: " + slo.error().message};
  }
  const bool open_loop = !options.trace.file.empty() || options.rate > 0;
  const bool endless = options.requests == 0 && options.duration == Duration{};
  bench::RunOptions run{
      .endpoint = std::move(*endpoint),
      .api_key = options.api_key,
      .api = options.api == "chat" ? bench::Api::kChat : bench::Api::kCompletions,
      .models = mix.models,
      .concurrency = open_loop ? 0 : std::max<std::int64_t>(1, options.concurrency),
      .requests = endless && options.trace.file.empty() ? kRequests : options.requests,
      .duration = options.duration,
      .patience = options.timeout,
      .ignore_eos = options.ignore_eos,
      .seed = options.seed,
      .slo = *slo};
  return run;
}

/// What a report says of the run.
bench::Circumstances circumstances(const BenchOptions& options, const bench::RunOptions& run) {
  bench::Circumstances all{{"url", run.endpoint.url()}, {"api", options.api}};
  if (!options.trace.file.empty()) {
    all.emplace_back("trace", options.trace.file);
    all.emplace_back("speed", std::to_string(options.trace.speed));
  } else {
    all.emplace_back("input tokens", options.input_tokens);
    all.emplace_back("output tokens", options.output_tokens);
  }
  if (options.rate > 0) {
    all.emplace_back("rate", std::to_string(options.rate));
  }
  if (run.concurrency > 0) {
    all.emplace_back("concurrency", std::to_string(run.concurrency));
  }
  if (!options.slo.empty()) {
    all.emplace_back("slo", options.slo);
  }
  all.emplace_back("seed", std::to_string(options.seed));
  return all;
}

/// Draws how far the run is.
void show(const bench::RunOptions& run, const bench::Progress& progress) {
  const double seconds = to_seconds(progress.elapsed);
  char text[160];
  std::snprintf(text,
                sizeof text,
                "%.0f s, %lld begun, %lld ended, %lld failed, %.0f tokens/s",
                seconds,
                static_cast<long long>(progress.begun),
                static_cast<long long>(progress.ended),
                static_cast<long long>(progress.failed),
                static_cast<double>(progress.tokens) / std::max(seconds, 0.001));
  double part = 0;
  if (run.requests > 0) {
    part = static_cast<double>(progress.ended) / static_cast<double>(run.requests);
  }
  if (run.duration > Duration{}) {
    const double span = static_cast<double>(run.duration.count());
    part = std::max(part, static_cast<double>(progress.elapsed.count()) / span);
  }
  show_bar(text, part);
}

bool write_file(const std::string& file, const std::string& text) {
  if (file.empty()) {
    return true;
  }
  if (file == "-") {
    std::fputs(text.c_str(), stdout);
    return true;
  }
  std::ofstream stream(file, std::ios::binary);
  return (stream << text) && stream.flush();
}

int tell(const BenchOptions& options, const bench::RunOptions& run, const bench::Results& results) {
  const bench::Circumstances about = circumstances(options, run);
  if (options.json != "-") {
    std::fputs(printable(format_table(bench::report_table(results))).c_str(), stdout);
    for (const std::string& note : bench::report_notes(results)) {
      std::printf("%s\n", printable(note).c_str());
    }
  }
  for (const auto& [file, text] :
       {std::pair(options.json, options.json.empty() ? "" : bench::report_json(results, about)),
        {options.html, options.html.empty() ? "" : bench::report_html(results, about)}}) {
    if (!write_file(file, text)) {
      return fail({.code = Code::kUnavailable, .message = file + ": cannot be written"});
    }
  }
  const bench::Summary& all = results.all();
  return all.requests > all.failed ? 0 : 1;
}

}  // namespace

int bench(const BenchOptions& options) {
  const Result<Mix> mix = parse_mix(options.models);
  if (!mix) {
    return fail(mix.error());
  }
  const Result<bench::RunOptions> run = run_options(options, *mix);
  if (!run) {
    return fail(run.error());
  }
  const auto shots = open_shots(options, *mix);
  if (!shots) {
    return fail(shots.error());
  }
  (void)raise_descriptor_limit();  // Each request that runs has a connection.
  const bool bar = stderr_is_terminal();
  const Result<bench::Results> results =
      bench::run(*run, **shots, [&](const bench::Progress& progress) {
        if (bar) {
          show(*run, progress);
        }
      });
  if (bar) {
    show_bar("", std::nullopt);
  }
  return results ? tell(options, *run, *results) : fail(results.error());
}

}  // namespace heddle::cli
