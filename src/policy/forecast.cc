#include "policy/forecast.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heddle::policy {
namespace {

constexpr std::array kAll = {
    Expert::kLastWindow, Expert::kCorrected, Expert::kSeasonal, Expert::kLastOrSeasonal};

/// A sum of weighted loads.
struct Sum {
  Load load{};
  double weight = 0;

  void add(Load term, double by) {
    load.mean += by * term.mean;
    load.peak += by * term.peak;
    weight += by;
  }
  [[nodiscard]] std::optional<Load> mean() const {
    if (weight == 0) {
      return std::nullopt;
    }
    return Load{.mean = load.mean / weight, .peak = load.peak / weight};
  }
};

/// What the predictors read: the windows before `window` only.
class Past {
 public:
  Past(const LoadHistory& history, std::int64_t window, const ForecastOptions& options)
      : history_(history), window_(window), options_(options) {}

  [[nodiscard]] std::optional<Load> at(std::int64_t window) const {
    return window < window_ ? history_.at(window) : std::nullopt;
  }

  /// The latest measured window, at most error_windows ago.
  [[nodiscard]] std::optional<Load> last() const {
    for (std::int64_t j = 1; j <= options_.error_windows; ++j) {
      if (const auto load = at(window_ - j)) {
        return load;
      }
    }
    return std::nullopt;
  }

  /// P(window) of Eq. 2.
  [[nodiscard]] std::optional<Load> seasonal(std::int64_t window) {
    Sum sum;
    for (std::int64_t day = 1; day <= options_.days; ++day) {
      if (const auto load = at(window - day * history_.windows_per_day())) {
        sum.add(*load, 1);
      }
    }
    return sum.weight > 0 ? sum.mean() : last_day();
  }

  /// delta of Eq. 3; zero when no error is known.
  [[nodiscard]] Load correction() {
    Sum sum;
    double weight = 1;
    const double factor = options_.weights == ErrorWeights::kPrinted ? 2.0 : 0.5;
    for (std::int64_t j = 1; j <= options_.error_windows; ++j, weight *= factor) {
      const auto real = at(window_ - j);
      const auto expected = real ? seasonal(window_ - j) : std::nullopt;
      if (expected) {
        sum.add({.mean = real->mean - expected->mean, .peak = real->peak - expected->peak}, weight);
      }
    }
    return sum.mean().value_or(Load{});
  }

 private:
  /// The mean of the 24 hours before the window; computed once.
  std::optional<Load> last_day() {
    if (!last_day_known_) {
      Sum sum;
      for (std::int64_t j = 1; j <= history_.windows_per_day(); ++j) {
        if (const auto load = at(window_ - j)) {
          sum.add(*load, 1);
        }
      }
      last_day_ = sum.mean();
      last_day_known_ = true;
    }
    return last_day_;
  }

  const LoadHistory& history_;
  std::int64_t window_;
  const ForecastOptions& options_;
  std::optional<Load> last_day_{};
  bool last_day_known_ = false;
};

std::optional<Load> corrected(Past& past, std::int64_t window) {
  const auto expected = past.seasonal(window);
  if (!expected) {
    return std::nullopt;
  }
  const Load delta = past.correction();
  const double mean = std::max(0.0, expected->mean + delta.mean);
  return Load{.mean = mean, .peak = std::max(mean, expected->peak + delta.peak)};
}

std::optional<Load> greater(std::optional<Load> a, std::optional<Load> b) {
  if (!a || !b) {
    return a ? a : b;
  }
  return Load{.mean = std::max(a->mean, b->mean), .peak = std::max(a->peak, b->peak)};
}

bool says_busy(const Load& load) {
  return load.peak >= 0.5;
}

/// How many windows had a request, and how many are known.
struct Windows {
  double busy = 0;
  double known = 0;

  void count(const std::optional<Load>& load) {
    if (load) {
      busy += load->peak > 0 ? 1 : 0;
      known += 1;
    }
  }
};

/// Those of the latest day.
Windows latest_day(const LoadHistory& history) {
  Windows latest;
  for (std::int64_t at = history.newest() - history.windows_per_day() + 1; at <= history.newest();
       ++at) {
    latest.count(history.at(at));
  }
  return latest;
}

/// P(a request in `window`), by the same time of earlier days, as if one day more had been like the
/// windows of the latest one.
std::optional<double> daily(const LoadHistory& history,
                            std::int64_t window,
                            const Windows& latest,
                            std::int64_t days) {
  Windows same;
  for (std::int64_t day = 1; day <= days; ++day) {
    same.count(history.at(window - day * history.windows_per_day()));
  }
  if (same.known == 0) {
    return std::nullopt;
  }
  return (same.busy + latest.busy / std::max(latest.known, 1.0)) / (same.known + 1);
}

}  // namespace

std::string_view expert_name(Expert expert) {
  switch (expert) {
    case Expert::kLastWindow:
      return "last_window";
    case Expert::kCorrected:
      return "corrected";
    case Expert::kSeasonal:
      return "seasonal";
    case Expert::kLastOrSeasonal:
      return "last_or_seasonal";
  }
  return "?";
}

std::optional<Load> predict(Expert expert,
                            const LoadHistory& history,
                            std::int64_t window,
                            const ForecastOptions& options) {
  HEDDLE_CHECK(options.error_windows > 0 && options.error_windows <= 1000);
  Past past(history, window, options);
  switch (expert) {
    case Expert::kLastWindow:
      return past.last();
    case Expert::kCorrected:
      return corrected(past, window);
    case Expert::kSeasonal:
      return past.seasonal(window);
    case Expert::kLastOrSeasonal:
      return greater(past.last(), past.seasonal(window));
  }
  return std::nullopt;
}

void Forecaster::score(const LoadHistory& history,
                       std::int64_t window,
                       const ForecastOptions& options) {
  const auto real = history.at(window);
  if (!real) {
    return;
  }
  for (const Expert expert : kAll) {
    const auto predicted = predict(expert, history, window, options);
    if (predicted) {
      Score& score = scores_[static_cast<std::size_t>(expert)];
      score.off = score.off * options.error_decay + std::abs(predicted->mean - real->mean);
      score.load = score.load * options.error_decay + real->mean;
      const bool busy = says_busy(*predicted);
      double& said = score.said.at(busy ? 1 : 0);
      double& came = score.came.at(busy ? 1 : 0);
      said = said * options.error_decay + 1;
      came = came * options.error_decay + (busy == (real->peak > 0) ? 1 : 0);
      ++score.judged;
    }
  }
}

std::optional<double> Forecast::asked() const {
  if (borne_out == 0) {
    return daily;
  }
  return busy ? std::max(borne_out, daily.value_or(0)) : daily.value_or(1 - borne_out);
}

double Forecaster::error(Expert expert) const {
  const Score& score = scores_[static_cast<std::size_t>(expert)];
  if (score.judged > 0 && score.off == 0) {
    return 0;
  }
  return score.load > 0 ? score.off / score.load : std::numeric_limits<double>::infinity();
}

Forecast Forecaster::forecast(const LoadHistory& history,
                              std::int64_t window,
                              const ForecastOptions& options) const {
  std::optional<Forecast> best;
  for (const Expert expert : kAll) {
    if (options.only && *options.only != expert) {
      continue;
    }
    const double error_now = error(expert);
    if (best && error_now >= best->error) {
      continue;
    }
    if (const auto load = predict(expert, history, window, options)) {
      best = Forecast{.load = *load, .expert = expert, .error = error_now};
    }
  }
  if (!best) {
    return {};
  }
  // As if it had been right and wrong half a time each before, so that once is not for ever.
  const Score& score = scores_[static_cast<std::size_t>(best->expert)];
  best->busy = says_busy(best->load);
  const std::size_t claim = best->busy ? 1 : 0;
  best->borne_out =
      score.said.at(claim) > 0 ? (score.came.at(claim) + 0.5) / (score.said.at(claim) + 1) : 0;
  const Windows latest = latest_day(history);
  best->daily = daily(history, window, latest, options.days);
  best->daily_after = daily(history, window + 1, latest, options.days);
  const double floor = best->load.mean + options.peak_deviations * std::sqrt(best->load.mean);
  best->load.peak = std::max(best->load.peak, floor);
  return *best;
}

}  // namespace heddle::policy
