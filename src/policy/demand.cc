#include "policy/demand.h"

#include <algorithm>
#include <chrono>

#include "base/exact_math.h"

namespace heddle::policy {
namespace {

/// Weight of the newest in what is averaged over requests.
constexpr double kNewest = 0.2;

}  // namespace

DemandMeter::DemandMeter(Instant now,
                         const Calendar& calendar,
                         std::int64_t days,
                         Duration seen,
                         const ForecastOptions& options)
    : average_(seen, now),
      history_(calendar.windows_per_day, days),
      meter_(now),
      options_(options),
      last_used_(now) {}

void DemandMeter::change(Instant now, std::int64_t by, const Calendar& calendar) {
  in_system_ += by;
  average_.set(now, in_system_);
  meter_.change(now, by, calendar, history_);
}

void DemandMeter::arrived(Instant now, std::int64_t tokens, const Calendar& calendar) {
  const double gap = to_seconds(now - last_used_);
  mean_gap_ = mean_gap_ == 0 ? gap : mean_gap_ + kNewest * (gap - mean_gap_);
  tokens_ = token_rate(now) * to_seconds(kRateTime) + static_cast<double>(tokens);
  tokens_at_ = now;
  last_used_ = now;
  change(now, 1, calendar);
}

void DemandMeter::left(Instant now, std::optional<Duration> took, const Calendar& calendar) {
  if (took) {
    mean_service_ += kNewest * (to_seconds(*took) - mean_service_);
    last_used_ = now;
  }
  change(now, -1, calendar);
}

double DemandMeter::token_rate(Instant now) const {
  const double time = to_seconds(kRateTime);
  return tokens_ / time * exact::exp(-to_seconds(now - tokens_at_) / time);
}

void DemandMeter::advance(Instant now, const Calendar& calendar) {
  meter_.advance(now, calendar, history_);
}

void DemandMeter::foresee(std::int64_t ended, std::int64_t next) {
  if (ended >= 0) {
    forecaster_.score(history_, ended, options_);
  }
  expected_ = forecaster_.forecast(history_, next, options_);
  coming_ = forecaster_.forecast(history_, next + 1, options_);
  grows_ = coming_.load.mean > expected_.load.mean || coming_.asked() > expected_.asked();
}

const Forecast& DemandMeter::expected_within(Duration lead,
                                             Instant now,
                                             const Calendar& calendar) const {
  const Instant turn = calendar.start_of(calendar.window_at(now) + 1);
  return turn - now <= lead && grows_ ? coming_ : expected_;
}

}  // namespace heddle::policy
