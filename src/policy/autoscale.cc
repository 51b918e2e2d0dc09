#include "policy/autoscale.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

std::int64_t ceil_of(double value) {
  return static_cast<std::int64_t>(std::ceil(value));
}

/// Whether it is likely enough that somebody asks for what is not loaded.
bool claims(const Forecast& forecast) {
  return forecast.asked() >=
         (forecast.daily_after >= kTrustedClaims ? kTrustedEarly : kTrustedClaims);
}

}  // namespace

SlidingSum::SlidingSum(Duration window, Instant start) : slice_(window / kSlices), start_(start) {
  HEDDLE_CHECK(slice_ > Duration{});
}

void SlidingSum::roll(Instant now) {
  const std::int64_t current = (now - start_) / slice_;
  HEDDLE_CHECK(current >= newest_);
  for (std::int64_t i = std::max(newest_ + 1, current - kSlices + 1); i <= current; ++i) {
    sums_[static_cast<std::size_t>(i % kSlices)] = 0;
  }
  newest_ = current;
}

void SlidingSum::add(Instant at, double value) {
  roll(at);
  sums_[static_cast<std::size_t>(newest_ % kSlices)] += value;
}

double SlidingSum::sum(Instant now) {
  roll(now);
  double total = 0;
  for (const double slice : sums_) {
    total += slice;
  }
  return total;
}

Duration SlidingSum::covered(Instant now) const {
  const std::int64_t first = std::max<std::int64_t>(0, (now - start_) / slice_ - kSlices + 1);
  return now - (start_ + first * slice_);
}

Instant SlidingSum::slice_end(Instant at) const {
  return start_ + ((at - start_) / slice_ + 1) * slice_;
}

void LoadAverage::set(Instant at, std::int64_t in_system) {
  HEDDLE_CHECK(at >= counted_to_ && in_system >= 0);
  // Slice by slice, so that a long quiet stretch is spread over all of them; more than one window
  // ago does not matter.
  const Duration whole = seconds_.slice() * SlidingSum::kSlices;
  counted_to_ = std::max(counted_to_, at - whole);
  while (counted_to_ < at) {
    const Instant end = std::min(at, seconds_.slice_end(counted_to_));
    seconds_.add(counted_to_, static_cast<double>(in_system_) * to_seconds(end - counted_to_));
    counted_to_ = end;
  }
  in_system_ = in_system;
}

double LoadAverage::mean(Instant now) {
  set(now, in_system_);
  const Duration covered = seconds_.covered(now);
  return covered > Duration{} ? seconds_.sum(now) / to_seconds(covered)
                              : static_cast<double>(in_system_);
}

Scaling choose_scaling(double load,
                       std::int64_t batch,
                       std::span<const InstanceView> running,
                       std::int64_t starting,
                       Instant now,
                       const ScaleOptions& options) {
  HEDDLE_CHECK(batch > 0 && load >= 0 && starting >= 0);
  HEDDLE_CHECK(options.up_above > options.down_below && options.down_below > 0);
  const double each = static_cast<double>(batch);
  const std::int64_t count = std::ssize(running) + starting;
  const double capacity = each * static_cast<double>(count);
  Scaling scaling;
  if (load > options.up_above * capacity) {
    scaling.reason = ScaleReason::kTooFew;
    scaling.start = std::max<std::int64_t>(0, ceil_of(load / (options.up_above * each)) - count);
    return scaling;
  }
  const std::int64_t target = std::max(options.least, ceil_of(load / (options.down_below * each)));
  if (load >= options.down_below * capacity || target >= count) {
    return scaling;
  }
  scaling.reason = ScaleReason::kTooMany;
  std::vector<InstanceView> victims;
  for (const InstanceView& instance : running) {
    if (now - instance.started >= options.youngest) {
      victims.push_back(instance);
    }
  }
  std::sort(victims.begin(), victims.end(), [](const InstanceView& a, const InstanceView& b) {
    return std::tie(a.running, b.id) < std::tie(b.running, a.id);
  });
  const auto surplus = static_cast<std::size_t>(count - target);
  for (std::size_t i = 0; i < std::min(surplus, victims.size()); ++i) {
    scaling.stop.push_back(victims[i].id);
  }
  return scaling;
}

ModelDemand gate_demand(ModelDemand demand,
                        const Forecast& forecast,
                        Heat heat,
                        double recent_peak) {
  if (forecast.error <= kTrustedError) {
    return demand;
  }
  // Just below what one instance serves.
  const double one = kScaleUpShare * static_cast<double>(demand.batch) * (1 - 1e-9);
  if (demand.instances == 0 && claims(forecast)) {
    demand.asked = forecast.asked();
    demand.mean_load = std::clamp(demand.mean_load, 1e-9, one);
    demand.peak_load = std::max(demand.mean_load, std::min(demand.peak_load, one));
    return demand;
  }
  if (heat != Heat::kHot) {
    demand.mean_load = 0;
    demand.peak_load = 0;
    return demand;
  }
  // Just below what the instances serve, so that no basic replica is missing, and no more than one
  // more instance serves, so that one burst replica is.
  const double each = kScaleUpShare * static_cast<double>(demand.batch);
  const double served = each * static_cast<double>(demand.instances);
  demand.mean_load = std::min(demand.mean_load, served * (1 - 1e-9));
  demand.peak_load =
      std::max(demand.mean_load, std::min(recent_peak, (served + each) * (1 - 1e-9)));
  return demand;
}

double recent_peak(const LoadHistory& history, std::int64_t window, std::int64_t windows) {
  double peak = 0;
  for (std::int64_t w = window - windows; w < window; ++w) {
    if (const auto load = history.at(w)) {
      peak = std::max(peak, load->peak);
    }
  }
  return peak;
}

}  // namespace heddle::policy
