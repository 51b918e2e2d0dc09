#pragma once

#include <cstdint>

#include "base/time.h"

namespace heddle::policy {

/// Something that holds memory so that a start is quicker: a prewarmed replica, idle weights, an
/// image in the host cache, a suspended engine, a cached prefix.
struct Asset {
  double needed = 0.0;     ///< P(x): that it is needed within the horizon, in [0, 1].
  Duration without{};      ///< Time to the first token without it: that of the next tier.
  Duration with{};         ///< Time to the first token with it.
  Duration ttft{};         ///< The model's objective; > 0.
  std::int64_t bytes = 0;  ///< That it holds, on all its devices; > 0.
};

/// The one number by which everything revocable is compared [s/byte]:
///   v(x) = P(x is needed within H) * (T_without - T_with) * weight / bytes,
/// weight = 1 if T_without breaks the objective, else T_without / objective. It stands for
/// WarmServe's score, Prism's order of idle models, SwapServeLLM's LRU and HydraServe's cache. It
/// ranks what to keep; what sums of lost value add is worth(). Zero where it saves no time.
[[nodiscard]] double value_density(const Asset& asset);

/// value_density * bytes [s]: the seconds of waiting that losing the asset is expected to cost.
[[nodiscard]] double worth(const Asset& asset);

/// P for a model whose demand is forecast: that it exceeds what the instances there are and the
/// replicas ranked before this one serve. Normal with mean `mean_load` and 99th percentile
/// `peak_load` [requests in the system]; `limit` = (instances + rank) * requests per instance.
[[nodiscard]] double needed_by_forecast(double limit, double mean_load, double peak_load);

/// P for any other: 1 - exp(-H / mean gap), a renewal at `mean_gap` > 0. Of a model that was idle
/// for longer than that, pass the longer.
[[nodiscard]] double needed_by_renewal(Duration horizon, Duration mean_gap);

/// H: the forecast's window where the forecast is used, else three mean gaps.
inline constexpr std::int64_t kGapsAhead = 3;

}  // namespace heddle::policy
