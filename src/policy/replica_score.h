#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// How the replicas to prewarm are counted and valued. L_A and L_P are the mean and peak load that
/// are forecast, B the batch size, K the instances, T_c the time to load.
enum class ScoreVariant : std::uint8_t {
  /// WarmServe Eq. 5 to 8 as printed: burstiness (L_P - L_A) / L_A, infinite when L_A is 0.
  kPaper,
  /// As the authors' code has it: burstiness L_P / L_A, and no precedence of basic replicas.
  kArtifact,
  /// What heddle uses of the paper's scores: 0.8 B for B, since the autoscaler starts another
  /// instance there and not at B; burstiness (L_P - L_A) / max(L_A, 1), so that a model with next
  /// to
  /// no load does not outrank a hot one; a load below kIdleLoad needs no basic replica.
  kCorrected,
  /// The time that a replica is expected to save: P(load > what K + rank instances serve) * (time
  /// to
  /// load - time to start on a replica), the load being normal with mean L_A and 99th percentile
  /// L_P. Counts as kCorrected without its guard, which it does not need; no kind has precedence.
  kValue,
};

/// Below this mean load [requests] a model counts as idle: used once an hour, say.
inline constexpr double kIdleLoad = 0.05;
/// Share of the batch size at which the autoscaler starts another instance.
inline constexpr double kScaleUpShare = 0.8;

enum class ReplicaKind : std::uint8_t {
  kBurst,  ///< For load above the mean.
  kBasic,  ///< For the mean load.
};

/// What a replica is worth. Ordered: the tier first (basic before burst, where the variant says
/// so), then the score [s]. Sums of lost worth add the scores.
struct ReplicaWorth {
  int tier = 0;
  double score = 0;
  friend auto operator<=>(const ReplicaWorth&, const ReplicaWorth&) = default;
};

/// Scores that would be lost. A basic replica outweighs all burst ones.
struct LostWorth {
  double basic = 0;  ///< Sum over tier 1.
  double burst = 0;  ///< Sum over tier 0.
  void add(ReplicaWorth worth) { (worth.tier > 0 ? basic : burst) += worth.score; }
  friend auto operator<=>(const LostWorth&, const LostWorth&) = default;
};

/// A model as prewarming sees it.
struct ModelDemand {
  ModelId model{};
  double mean_load = 0;        ///< L_A [requests in the system].
  double peak_load = 0;        ///< L_P; one below L_A counts as L_A.
  std::int64_t batch = 32;     ///< B: requests that one instance runs at once.
  std::int64_t instances = 0;  ///< K: running and starting ones, not those that drain.
  std::int64_t devices = 1;    ///< tp: devices of one instance, all of one server.
  /// Groups of so many devices that it may lie on; empty: any.
  std::vector<std::vector<DeviceId>> blocks{};
  bool alone = false;  ///< It has its block to itself when it runs.
  /// Of one device alone: where it is loaded soonest, to be tried before all others.
  std::vector<DeviceId> near{};
  std::int64_t pages_per_device = 0;  ///< Its weights on each of them.
  Duration load_time{};               ///< T_c, from the tier that now holds the weights.
  Duration hit_time{};                ///< To start on a replica; used by kValue.
  /// Objective for the first token: time saved counts in part where the load alone does not break
  /// it, as in policy/value.h; used by kValue. 0: it counts in full.
  Duration ttft{};
  /// P(anybody asks), where that is known better than from the loads; used by kValue.
  std::optional<double> asked{};
};

/// A replica that a model should have.
struct DesiredReplica {
  ReplicaKind kind = ReplicaKind::kBasic;
  ReplicaWorth worth{};
  friend bool operator==(const DesiredReplica&, const DesiredReplica&) = default;
};

/// The replicas to hold for a model, the most wanted first (WarmServe Eq. 5 to 8):
///   N_basic = max(ceil(L_A / B) - K, 0)             N_burst = max(ceil(L_P / B) - N_basic - K, 0)
///   S_basic(i) = exp(-i / N) T_c      S_burst(i) = exp(-(N_basic + i) / N) T_c burstiness
/// with N = N_basic + N_burst. K counts instances that are starting, as the authors' code does not:
/// without them it prewarms one too many while an instance starts. Loads and batch must be
/// positive or zero, and finite.
[[nodiscard]] std::vector<DesiredReplica> desired_replicas(const ModelDemand& demand,
                                                           ScoreVariant variant);

/// How many they are.
[[nodiscard]] std::int64_t desired_count(const ModelDemand& demand, ScoreVariant variant);

/// P(X > limit) for a normal X with this mean and 99th percentile.
[[nodiscard]] double tail_probability(double limit, double mean, double percentile99);

}  // namespace heddle::policy
