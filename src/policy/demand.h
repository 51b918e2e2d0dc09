#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "policy/autoscale.h"
#include "policy/forecast.h"
#include "policy/load_history.h"

namespace heddle::policy {

/// How much a model is asked for: measured as its requests come and end, and forecast for the next
/// window. A value; times must not go back.
class DemandMeter {
 public:
  /// Remembers `days` days of windows as `calendar` cuts them; load() is over the last `seen`.
  DemandMeter(Instant now,
              const Calendar& calendar,
              std::int64_t days,
              Duration seen = std::chrono::seconds(5),
              const ForecastOptions& options = {});

  /// A request came; `tokens` is the most that prompt and answer together will have.
  void arrived(Instant now, std::int64_t tokens, const Calendar& calendar);
  /// A request left, served in `took`; nullopt: unserved, which is no use of the model.
  void left(Instant now, std::optional<Duration> took, const Calendar& calendar);
  /// Enters the windows that have ended into the history.
  void advance(Instant now, const Calendar& calendar);
  /// Enters a window that was measured before this object was made, oldest first.
  void remember(std::int64_t window, Load load) { history_.record(window, load); }
  /// Judges the experts by the window `ended` (none if negative) and forecasts `next` and, as far
  /// as that can be known before it, the window that follows.
  void foresee(std::int64_t ended, std::int64_t next);

  [[nodiscard]] std::int64_t in_system() const { return in_system_; }
  /// Time average of the number in the system lately, as autoscaling reads it.
  [[nodiscard]] double load(Instant now) { return average_.mean(now); }
  [[nodiscard]] const LoadHistory& history() const { return history_; }
  /// Of the window that foresee() was last asked about.
  [[nodiscard]] const Forecast& expected() const { return expected_; }
  /// Whether the window that follows is expected to bring more.
  [[nodiscard]] bool grows() const { return grows_; }
  /// As expected(), but where the window that follows begins within `lead` and is expected to bring
  /// more: that one. What takes so long to prepare is then ready when it begins.
  [[nodiscard]] const Forecast& expected_within(Duration lead,
                                                Instant now,
                                                const Calendar& calendar) const;
  /// When a request came or was served last; when this object was made, if none has.
  [[nodiscard]] Instant last_used() const { return last_used_; }
  /// Between two uses, lately [s]; 0: unknown.
  [[nodiscard]] double mean_gap() const { return mean_gap_; }
  /// In the system, lately [s].
  [[nodiscard]] double mean_service() const { return mean_service_; }
  /// Tokens asked for, lately [1/s]: those of kRateTime ago count 1 / e.
  [[nodiscard]] double token_rate(Instant now) const;
  static constexpr Duration kRateTime = std::chrono::seconds(10);

 private:
  void change(Instant now, std::int64_t by, const Calendar& calendar);

  LoadAverage average_;
  LoadHistory history_;
  LoadMeter meter_;
  ForecastOptions options_;
  Forecaster forecaster_{};
  Forecast expected_{};
  Forecast coming_{};   ///< Of the window after that.
  bool grows_ = false;  ///< `coming_` is of more than `expected_`.
  std::int64_t in_system_ = 0;
  Instant last_used_;
  double mean_gap_ = 0;
  double mean_service_ = 1;
  double tokens_ = 0;  ///< Asked for, decayed until `tokens_at_`.
  Instant tokens_at_{};
};

}  // namespace heddle::policy
