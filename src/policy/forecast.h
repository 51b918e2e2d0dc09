#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "policy/load_history.h"

namespace heddle::policy {

/// Ways to guess the load of a window from the windows before it.
enum class Expert : std::uint8_t {
  kLastWindow,      ///< As the latest measured window.
  kCorrected,       ///< WarmServe's corrective seasonal predictor.
  kSeasonal,        ///< The mean of the same time on earlier days.
  kLastOrSeasonal,  ///< The greater of the last window and the seasonal mean.
};
inline constexpr std::size_t kExperts = 4;

/// The name used in logs and reports: "corrected".
[[nodiscard]] std::string_view expert_name(Expert expert);

/// How the corrective predictor weighs the errors of the last N windows.
enum class ErrorWeights : std::uint8_t {
  /// 2^(j-1) for the window j ago, as WarmServe prints Eq. 3: half of the weight lies on the
  /// oldest.
  kPrinted,
  /// 2^(-j), as the sentence below Eq. 3 and the authors' code have it: the newest counts most.
  kNewestFirst,
};

struct ForecastOptions {
  std::int64_t days = 7;            ///< D of Eq. 2: earlier days in the seasonal mean; 0: none.
  std::int64_t error_windows = 10;  ///< N of Eq. 3.
  ErrorWeights weights = ErrorWeights::kNewestFirst;
  std::optional<Expert>
      only{};                 ///< One expert always (paper: kCorrected); none: the best by error.
  double error_decay = 0.98;  ///< Weight of a past error per window since; 0.98 halves in 34.
  /// The predicted peak is at least mean + peak_deviations * sqrt(mean): the load of independent
  /// arrivals is Poisson. 0 as in the paper.
  double peak_deviations = 2;
};

/// What one expert says about `window`, from the windows before it alone. nullopt: it knows
/// nothing. Units: requests in the system. Costs O(days * error_windows).
///
/// kCorrected is WarmServe section 5.1: with P(w) the seasonal mean of Eq. 2,
///   delta = sum_j weight_j (L(w-j) - P(w-j)) / sum_j weight_j,  j = 1..N        (Eq. 3)
///   result = max(0, P(w) + delta), peak >= mean.                                (Eq. 4)
/// Where the paper is silent: a missing window loses its term; j runs on into the day before; a
/// time of day without an earlier day takes the mean of the last 24 hours for P.
[[nodiscard]] std::optional<Load> predict(Expert expert,
                                          const LoadHistory& history,
                                          std::int64_t window,
                                          const ForecastOptions& options);

/// A guess, and how much such guesses have been worth.
struct Forecast {
  Load load{};  ///< Expected mean and peak; peak >= mean.
  Expert expert = Expert::kLastWindow;
  /// Recent sum of |predicted - real| mean load over sum of real: 0 is perfect. Infinite while
  /// there is nothing to judge by, so that `error <= limit` is a safe gate.
  double error = std::numeric_limits<double>::infinity();
  /// Whether somebody will ask at all can be known where how much cannot: it says so where half a
  /// request at once is expected at the peak, as when there was one on every other day.
  bool busy = false;
  /// Of the recent windows of which it said the same, the part in which that came true: that there
  /// was a request, or none. 0 where there was no such window.
  double borne_out = 0;

  /// Part of the earlier days on which somebody asked in this window. nullopt: no day is known.
  std::optional<double> daily{};
  /// The same of the window that follows.
  std::optional<double> daily_after{};

  /// P(somebody asks): as on earlier days, or more where the forecast says so, by how often such
  /// forecasts came true. nullopt: there were neither.
  [[nodiscard]] std::optional<double> asked() const;
};

/// Keeps, for one model, the decayed absolute error of each expert and forecasts with the best.
/// Values only: copying it forks it.
class Forecaster {
 public:
  /// Judges all experts by `window`, which was just recorded in `history`; a window that is missing
  /// there judges nobody. Each window once, in order.
  void score(const LoadHistory& history, std::int64_t window, const ForecastOptions& options);

  /// The load to expect in `window`; an expert without a past is passed over. Zero with infinite
  /// error when no expert knows anything.
  [[nodiscard]] Forecast forecast(const LoadHistory& history,
                                  std::int64_t window,
                                  const ForecastOptions& options) const;

  /// Recent relative error of one expert, as Forecast::error.
  [[nodiscard]] double error(Expert expert) const;

 private:
  struct Score {
    double off = 0;   // Decayed sum of |predicted - real|.
    double load = 0;  // Decayed sum of real, over the windows that it predicted.
    std::int64_t judged = 0;
    std::array<double, 2> said{};  // Decayed counts of windows: idle, busy.
    std::array<double, 2> came{};  // Of these, those that were.
  };
  std::array<Score, kExperts> scores_{};
};

}  // namespace heddle::policy
