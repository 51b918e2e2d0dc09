#include "policy/value.h"

#include <algorithm>

#include "base/check.h"
#include "base/exact_math.h"
#include "policy/replica_score.h"

namespace heddle::policy {

double worth(const Asset& asset) {
  HEDDLE_CHECK(asset.ttft > Duration{});
  const double saved = std::max(0.0, to_seconds(asset.without - asset.with));
  const double weight = std::min(1.0, to_seconds(asset.without) / to_seconds(asset.ttft));
  return asset.needed * saved * weight;
}

double value_density(const Asset& asset) {
  HEDDLE_CHECK(asset.bytes > 0);
  return worth(asset) / static_cast<double>(asset.bytes);
}

double needed_by_forecast(double limit, double mean_load, double peak_load) {
  return tail_probability(limit, mean_load, std::max(mean_load, peak_load));
}

double needed_by_renewal(Duration horizon, Duration mean_gap) {
  HEDDLE_CHECK(mean_gap > Duration{} && horizon >= Duration{});
  return 1.0 - exact::exp(-to_seconds(horizon) / to_seconds(mean_gap));
}

}  // namespace heddle::policy
