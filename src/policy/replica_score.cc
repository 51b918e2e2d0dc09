#include "policy/replica_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/exact_math.h"

namespace heddle::policy {
namespace {

std::int64_t instances_for(double load, double batch) {
  return static_cast<std::int64_t>(std::ceil(load / batch));
}

/// The last factor of Eq. 8.
double burstiness(double mean, double peak, ScoreVariant variant) {
  switch (variant) {
    case ScoreVariant::kPaper:
      return mean > 0 ? (peak - mean) / mean : std::numeric_limits<double>::infinity();
    case ScoreVariant::kArtifact:
      return mean > 0 ? peak / mean : std::numeric_limits<double>::infinity();
    case ScoreVariant::kCorrected:
    case ScoreVariant::kValue:
      break;
  }
  return (peak - mean) / std::max(mean, 1.0);
}

/// Requests that one instance is to run at once.
double batch_of(const ModelDemand& demand, ScoreVariant variant) {
  const bool own = variant == ScoreVariant::kCorrected || variant == ScoreVariant::kValue;
  return static_cast<double>(demand.batch) * (own ? kScaleUpShare : 1.0);
}

/// N_basic and N_burst.
struct Counts {
  std::int64_t basic = 0;
  std::int64_t burst = 0;
};

Counts counts_of(const ModelDemand& demand, ScoreVariant variant) {
  HEDDLE_CHECK(demand.batch > 0 && demand.instances >= 0);
  HEDDLE_CHECK(demand.mean_load >= 0 && std::isfinite(demand.mean_load));
  HEDDLE_CHECK(demand.peak_load >= 0 && std::isfinite(demand.peak_load));
  const double batch = batch_of(demand, variant);
  const double mean = demand.mean_load;
  const double peak = std::max(mean, demand.peak_load);
  const bool idle = variant == ScoreVariant::kCorrected && mean < kIdleLoad;
  const std::int64_t k = demand.instances;
  const std::int64_t basic = idle ? 0 : std::max<std::int64_t>(instances_for(mean, batch) - k, 0);
  return {.basic = basic,
          .burst = std::max<std::int64_t>(instances_for(peak, batch) - basic - k, 0)};
}

bool basic_first(ScoreVariant variant) {
  return variant == ScoreVariant::kPaper || variant == ScoreVariant::kCorrected;
}

}  // namespace

double tail_probability(double limit, double mean, double percentile99) {
  constexpr double kDeviationsTo99 = 2.3263478740408408;
  const double deviation = (percentile99 - mean) / kDeviationsTo99;
  if (!(deviation > 0)) {
    return mean > limit ? 1 : 0;
  }
  const double z = (limit - mean) / deviation;
  // erfc by the rational approximation 7.1.26 of Abramowitz and Stegun; absolute error < 1.5e-7.
  const double x = std::abs(z) * 0.7071067811865476;
  const double t = 1 / (1 + 0.3275911 * x);
  const double polynomial =
      ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) *
      t;
  const double upper = 0.5 * polynomial * exact::exp(-x * x);
  return z >= 0 ? upper : 1 - upper;
}

std::int64_t desired_count(const ModelDemand& demand, ScoreVariant variant) {
  const auto [basic, burst] = counts_of(demand, variant);
  return basic + burst;
}

std::vector<DesiredReplica> desired_replicas(const ModelDemand& demand, ScoreVariant variant) {
  const auto [basic, burst] = counts_of(demand, variant);
  const double batch = batch_of(demand, variant);
  const double mean = demand.mean_load;
  const double peak = std::max(mean, demand.peak_load);
  const std::int64_t k = demand.instances;
  const std::int64_t count = basic + burst;
  std::vector<DesiredReplica> replicas;
  replicas.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    DesiredReplica replica{.kind = i < basic ? ReplicaKind::kBasic : ReplicaKind::kBurst};
    if (variant == ScoreVariant::kValue) {
      const double served = static_cast<double>(k + i) * batch;
      const bool first = k + i == 0 && demand.asked;
      const double weight = demand.ttft > demand.load_time
                                ? to_seconds(demand.load_time) / to_seconds(demand.ttft)
                                : 1;
      replica.worth.score = (first ? *demand.asked : tail_probability(served, mean, peak)) *
                            std::max(0.0, to_seconds(demand.load_time - demand.hit_time)) * weight;
    } else {
      const double decay = exact::exp(-static_cast<double>(i) / static_cast<double>(count));
      const double factor = i < basic ? 1 : burstiness(mean, peak, variant);
      replica.worth.score = decay * to_seconds(demand.load_time) * factor;
      replica.worth.tier = basic_first(variant) && i < basic ? 1 : 0;
    }
    replicas.push_back(replica);
  }
  return replicas;
}

}  // namespace heddle::policy
