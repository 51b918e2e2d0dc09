#include "lab/drawn_trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "base/check.h"
#include "base/rng.h"

namespace heddle::lab {

namespace {

constexpr int kBisections = 60;

/// Uniform in (0, 1).
double uniform(Rng& rng) {
  return (static_cast<double>(rng.next() >> 11U) + 0.5) * 0x1p-53;
}

/// Standard normal (G. E. P. Box and M. E. Muller, 1958).
double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(uniform(rng)));
  return radius * std::cos(2 * std::numbers::pi * uniform(rng));
}

/// Gamma with this shape and mean 1 (G. Marsaglia and W. W. Tsang, "A simple method for generating
/// gamma variables", 2000; shapes below 1 by its section 6).
double gamma_of_mean_one(Rng& rng, double shape) {
  const double boosted = shape < 1 ? shape + 1 : shape;
  const double d = boosted - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(rng);
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(uniform(rng)) < x * x / 2 + d - d * v + d * std::log(v)) {
      const double scale = shape < 1 ? std::pow(uniform(rng), 1 / shape) : 1;
      return d * v * scale / shape;
    }
  }
}

std::int64_t draw(Rng& rng, const bench::TokenRange& range) {
  return range.least + static_cast<std::int64_t>(
                           rng.below(static_cast<std::uint64_t>(range.most - range.least) + 1));
}

/// How many arrivals of one model are expected by `t`.
struct Wave {
  double mean = 0;
  double depth = 0;
  double period = 1;   ///< [s]
  double late = 0;     ///< Part of a period by which this wave comes after time 0.
  double plateau = 0;  ///< Part of a period for which the rate is up; 0: it goes as a sine.

  [[nodiscard]] double expected(double t) const {
    return mean * period * (since_wave(t / period - late) - since_wave(-late));
  }
  /// The integral of the rate over its mean, up to so many periods after a wave began.
  [[nodiscard]] double since_wave(double periods) const {
    if (plateau == 0) {
      constexpr double kTurn = 2 * std::numbers::pi;
      return periods + depth / kTurn * (1 - std::cos(kTurn * periods));
    }
    const double down = 1 - depth;
    const double up = down + depth / plateau;  // So that the mean is 1.
    const double whole = std::floor(periods);
    const double part = periods - whole;
    return whole + up * std::min(part, plateau) + down * std::max(0.0, part - plateau);
  }
  /// When so many are expected; `most` if that is later.
  [[nodiscard]] double when(double count, double most) const {
    double low = 0;
    double high = most;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      (expected(middle) < count ? low : high) = middle;
    }
    return high;
  }
};

}  // namespace

std::vector<bench::Shot> draw_trace(const DrawnTrace& trace,
                                    std::size_t models,
                                    std::uint64_t seed) {
  HEDDLE_CHECK(models > 0 && trace.rate > 0 && trace.cv > 0);
  const double span = to_seconds(trace.duration);
  double weights = 0;
  for (std::size_t i = 0; i < models; ++i) {
    weights += std::pow(static_cast<double>(i + 1), -trace.zipf);
  }
  const double up = trace.in_turn ? 1 / static_cast<double>(models) : 0.5;
  const double plateau = trace.square ? up : 0;
  std::vector<bench::Shot> shots;
  Rng all(seed);
  for (std::size_t i = 0; i < models; ++i) {
    Rng rng = all.fork();
    const double share = std::pow(static_cast<double>(i + 1), -trace.zipf) / weights;
    const double turn = static_cast<double>(i) / static_cast<double>(models);
    const Wave wave{.mean = trace.rate * share,
                    .depth = trace.period > Duration{} ? trace.depth : 0,
                    .period = trace.period > Duration{} ? to_seconds(trace.period) : 1,
                    .late = trace.in_turn ? turn : 0,
                    .plateau = plateau};
    const double shape = 1 / (trace.cv * trace.cv);
    const double most = wave.expected(span);
    // The first gap is cut at a random place, as by somebody who comes to look at any moment.
    for (double count = gamma_of_mean_one(rng, shape) * uniform(rng); count < most;
         count += gamma_of_mean_one(rng, shape)) {
      const double at = wave.when(count, span);
      shots.push_back({.at = Duration(static_cast<std::int64_t>(at * 1e9)),
                       .model = i,
                       .input_tokens = draw(rng, trace.input),
                       .output_tokens = draw(rng, trace.output)});
    }
  }
  std::sort(shots.begin(), shots.end(), [](const bench::Shot& a, const bench::Shot& b) {
    return std::tie(a.at, a.model, a.input_tokens, a.output_tokens) <
           std::tie(b.at, b.model, b.input_tokens, b.output_tokens);
  });
  return shots;
}

}  // namespace heddle::lab
