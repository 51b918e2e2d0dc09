#include "cli/history_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/exact_math.h"
#include "base/rng.h"
#include "base/units.h"
#include "sim/print.h"

namespace heddle::cli {
namespace {

/// What one request may have, whatever is drawn.
constexpr double kTokensMost = 1e7;

/// In [0, 1).
double evenly(Rng& rng) {
  return static_cast<double>(rng.next() >> 11U) * 0x1p-53;
}

/// Near enough to a standard normal, without a function that machines have different ones of: the
/// sum of twelve even draws (Irwin-Hall).
double normally(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) {
    sum += evenly(rng);
  }
  return sum;
}

/// Lengths of a model's requests: of mean exp(mu + sigma^2 / 2), where both fit mean and variance.
class Lengths {
 public:
  Lengths(double sum, double squares, double count) {
    const double mean = std::max(1.0, sum / count);
    const double variance = std::max(0.0, squares / count - mean * mean);
    const double sigma_2 = exact::log(1 + variance / (mean * mean));
    sigma_ = std::sqrt(sigma_2);
    mu_ = exact::log(mean) - sigma_2 / 2;
  }
  std::int64_t draw(Rng& rng) const {
    const double tokens = exact::exp(mu_ + sigma_ * normally(rng));
    return static_cast<std::int64_t>(std::clamp(tokens + 0.5, 1.0, kTokensMost));
  }

 private:
  double mu_ = 0;
  double sigma_ = 0;
};

struct Window {
  std::int64_t number = 0;
  const history::ModelTraffic* models = nullptr;
};

/// The windows that count, ascending; those without requests are left out.
std::vector<Window> windows_of(const history::TrafficHistory& history, Duration last) {
  std::vector<Window> windows;
  for (const auto& [number, models] : history.windows) {
    if (std::ranges::any_of(models, [](const auto& each) { return each.second.arrivals > 0; })) {
      windows.push_back({.number = number, .models = &models});
    }
  }
  if (last > Duration{} && !windows.empty()) {
    const std::int64_t count = (last + history.window - Duration(1)) / history.window;
    const std::int64_t first = windows.back().number - count + 1;
    std::erase_if(windows, [&](const Window& window) { return window.number < first; });
  }
  return windows;
}

void draw_window(const Window& window,
                 Instant begin,
                 Duration length,
                 const history::ModelTraffic& all,
                 Rng& rng,
                 std::vector<sim::OtlpRow>& rows) {
  for (const auto& [model, asked] : *window.models) {
    // Each has a stream of its own, so that one model more leaves the others' requests be.
    Rng own = rng.fork();
    const history::Traffic& known = asked.finished > 0 ? asked : all.at(model);
    if (asked.arrivals == 0 || known.finished == 0) {
      continue;
    }
    const auto count = static_cast<double>(known.finished);
    const Lengths prompts(known.prompt_tokens, known.prompt_squares, count);
    const Lengths answers(known.answer_tokens, known.answer_squares, count);
    for (std::int64_t i = 0; i < asked.arrivals; ++i) {
      const auto late = own.below(static_cast<std::uint64_t>(length.count()));
      rows.push_back({.arrival = begin + Duration(static_cast<Duration::rep>(late)),
                      .model = model,
                      .input_tokens = prompts.draw(own),
                      .output_tokens = answers.draw(own)});
    }
  }
}

}  // namespace

Result<DrawnTrace> draw_trace(const history::TrafficHistory& history, const DrawOptions& options) {
  const std::vector<Window> windows = windows_of(history, options.last);
  if (windows.size() < kLeastWindows) {
    return Error{
        .code = Code::kInvalidArgument,
        .message =
            sim::print("the history has requests in %zu windows of ", windows.size()) +
            format_duration(history.window) +
            sim::print(", which is too little to plan with: want at least %zu", kLeastWindows)};
  }
  history::ModelTraffic all;
  for (const Window& window : windows) {
    for (const auto& [model, asked] : *window.models) {
      all[model].add(asked);
    }
  }
  DrawnTrace trace;
  for (const auto& [model, asked] : all) {
    if (asked.finished == 0 && asked.arrivals > 0) {
      trace.problems.push_back(model + ": none of its " + std::to_string(asked.arrivals) +
                               " requests ended with a number of tokens");
    }
  }
  const std::int64_t span = windows.back().number - windows.front().number + 1;
  Rng rng(options.seed);
  for (std::int64_t draw = 0; draw < options.draws; ++draw) {
    for (const Window& window : windows) {
      const std::size_t before = trace.rows.size();
      const std::int64_t place = draw * span + window.number - windows.front().number;
      draw_window(window, Instant(place * history.window), history.window, all, rng, trace.rows);
      std::sort(trace.rows.begin() + static_cast<std::ptrdiff_t>(before),
                trace.rows.end(),
                [](const sim::OtlpRow& a, const sim::OtlpRow& b) {
                  return std::tie(a.arrival, a.model, a.input_tokens, a.output_tokens) <
                         std::tie(b.arrival, b.model, b.input_tokens, b.output_tokens);
                });
    }
  }
  if (trace.rows.empty()) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "no request of the history ended with a number of tokens"};
  }
  trace.origin = sim::print("drawn %lld times from a history: in each of %zu windows of ",
                            static_cast<long long>(options.draws),
                            windows.size()) +
                 format_duration(history.window) +
                 sim::print(
                     ", numbers of requests and mean lengths are as they were, times and "
                     "single lengths are drawn (seed %llu)",
                     static_cast<unsigned long long>(options.seed));
  return trace;
}

}  // namespace heddle::cli
