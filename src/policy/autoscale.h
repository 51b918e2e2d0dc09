#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "policy/forecast.h"
#include "policy/replica_map.h"
#include "policy/replica_score.h"

namespace heddle::policy {

/// A sum over the last while, in ten slices: arrivals, or the integral of a load. O(1) a call.
class SlidingSum {
 public:
  static constexpr std::int64_t kSlices = 10;

  /// window > 0, a multiple of ten nanoseconds.
  SlidingSum(Duration window, Instant start);

  void add(Instant at, double value);
  /// Over [start of the slice that is kSlices - 1 before `now`'s, now]: nine to ten tenths of the
  /// window. `at` and `now` must not go back.
  [[nodiscard]] double sum(Instant now);
  /// How much time that covers; less in the beginning.
  [[nodiscard]] Duration covered(Instant now) const;
  [[nodiscard]] Duration slice() const { return slice_; }
  /// When the slice ends that `at` lies in.
  [[nodiscard]] Instant slice_end(Instant at) const;

 private:
  void roll(Instant now);

  Duration slice_;
  Instant start_;
  std::int64_t newest_ = 0;  // Number of the slice under way, from start_.
  std::array<double, kSlices> sums_{};
};

/// The time average of a model's load over the last while, as WarmServe's autoscaler reads it.
class LoadAverage {
 public:
  LoadAverage(Duration window, Instant start) : seconds_(window, start), counted_to_(start) {}

  /// From `at` on there are `in_system` requests, queued ones included. Must not go back.
  void set(Instant at, std::int64_t in_system);
  [[nodiscard]] double mean(Instant now);

 private:
  SlidingSum seconds_;
  Instant counted_to_;
  std::int64_t in_system_ = 0;
};

/// An instance as scaling and routing see it; a replica that serves.
struct InstanceView {
  ReplicaId id{};
  std::int64_t running = 0;  ///< Requests in it.
  Instant started{};
};

struct ScaleOptions {
  double up_above = kScaleUpShare;  ///< Of the capacity of all instances.
  double down_below = 0.5;
  Duration youngest = std::chrono::seconds(5);  ///< Younger instances are not stopped.
  /// Instances that stay without any load. heddle keeps one, which goes when its pages are wanted
  /// and worth more to somebody else.
  std::int64_t least = 0;
};

enum class ScaleReason : std::uint8_t { kEnough, kTooFew, kTooMany };

struct Scaling {
  ScaleReason reason = ScaleReason::kEnough;
  std::int64_t start = 0;         ///< Instances to create.
  std::vector<ReplicaId> stop{};  ///< Instances that begin their grace period.
  friend bool operator==(const Scaling&, const Scaling&) = default;
};

/// How many instances a model should have. The paper does not say; as WarmServe's code does it,
/// every 0.5 s over the load of the last 5 s, with n instances running or starting and B = batch:
///   load > 0.8 n B:  ceil(load / (0.8 B))          load < 0.5 n B:  ceil(load / (0.5 B))
/// so that an idle model goes to zero after 5 s, and one instance stays while there is any load.
/// Stopped are those with the fewest requests (ties: the higher id), never a young one nor one that
/// starts.
[[nodiscard]] Scaling choose_scaling(double load,
                                     std::int64_t batch,
                                     std::span<const InstanceView> running,
                                     std::int64_t starting,
                                     Instant now,
                                     const ScaleOptions& options);

/// Largest relative error of a forecast that replicas are prewarmed on. Models with much traffic
/// stay below it, those that are mostly idle far above.
inline constexpr double kTrustedError = 0.35;

/// Least probability that somebody asks (Forecast::asked) that is acted upon: what is less likely
/// is not worth the link and the pages that a load takes.
inline constexpr double kTrustedClaims = 0.5;

/// The same where the window that follows is likely to have a request on any day: what is loaded
/// for that one anyway is loaded a window sooner. Half as much, since what comes every day about
/// where two windows meet falls into the first on one half of the days.
inline constexpr double kTrustedEarly = kTrustedClaims / 2;

/// Whether a model has enough traffic for instances of its own.
enum class Heat : std::uint8_t { kOther, kHot };

/// What prewarming may count on. A forecast within kTrustedError is taken as it is. One that is
/// believed only in that somebody will ask (kTrustedClaims, kTrustedEarly) is good for one
/// instance, as often as that came true.
/// Else a hot model gets one burst replica if the peak of the last hour was more than its instances
/// serve, and any other none. `demand` holds the forecast and K.
[[nodiscard]] ModelDemand gate_demand(ModelDemand demand,
                                      const Forecast& forecast,
                                      Heat heat,
                                      double recent_peak);

/// The largest peak of the `windows` windows before `window`; 0 if none was measured.
[[nodiscard]] double recent_peak(const LoadHistory& history,
                                 std::int64_t window,
                                 std::int64_t windows);

}  // namespace heddle::policy
