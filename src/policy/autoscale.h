#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
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

enum class RouteAction : std::uint8_t {
  kSend,   ///< To `instance`.
  kStart,  ///< All are full and none is starting: start one; the request queues.
  kQueue,  ///< Until an instance has room.
};

struct Route {
  RouteAction action = RouteAction::kQueue;
  ReplicaId instance{};  ///< Of kSend.
  friend bool operator==(const Route&, const Route&) = default;
};

/// Where a request goes, as in WarmServe's code: to the instance with the fewest running requests
/// (ties: the lower id), if these are fewer than `batch`.
[[nodiscard]] Route choose_route(std::span<const InstanceView> running,
                                 std::int64_t starting,
                                 std::int64_t batch);

/// For how long weights stay when nobody uses them.
struct KeepAlive {
  Duration least{};              ///< At least so long,
  std::int64_t activations = 0;  ///< and at least so many times what it takes to bring them back.
  bool on_demand = true;  ///< Afterwards they go only when their room is wanted; else at once.
};

/// HydraServe's code.
inline constexpr KeepAlive kHydraKeepAlive{.least = std::chrono::seconds(30), .on_demand = false};
/// Prism's code, and what its text suggests.
inline constexpr KeepAlive kPrismCodeKeepAlive{.least = std::chrono::seconds(50),
                                               .on_demand = false};
inline constexpr KeepAlive kPrismKeepAlive{.least = std::chrono::seconds(10), .activations = 5};
/// heddle: what it is worth alone decides, when somebody wants the room. WarmServe: a stopped
/// instance stays as a replica until it is launched over.
inline constexpr KeepAlive kNoKeepAlive{};

/// From when on a model may go that was last used at `last_used` and takes `activation` to return.
[[nodiscard]] Instant kept_until(const KeepAlive& rule, Instant last_used, Duration activation);

/// Cold starts that a model wants (HydraServe, where it chooses between scaling down and up; worker
/// = an instance that may begin as one stage of a pipeline group).
struct WorkerDemand {
  std::int64_t queued = 0;
  /// Arrivals of the last window: the most that are expected in the next one. Dividing what is
  /// expected by the batch size is ours.
  std::int64_t predicted = 0;
  std::int64_t batch = 8;    ///< Requests that one worker runs at once.
  std::int64_t workers = 0;  ///< Running or starting.
  std::int64_t stages = 1;   ///< That the SLO of a cold start asks for, at least.
};

/// Members of the groups to start; after the first token `workers` of them become standalone.
struct WorkerPlan {
  std::int64_t workers = 0;  ///< New ones wanted; 0: start nothing.
  std::int64_t groups = 0;
  std::int64_t stages = 1;  ///< Of each group.
  friend bool operator==(const WorkerPlan&, const WorkerPlan&) = default;
};

inline constexpr std::int64_t kGroupWorkers = 4;  ///< HydraServe's groups have no more members.

enum class WorkerVariant : std::uint8_t {
  kCorrected,  ///< ceil((queued + predicted) / B) less what there is.
  kArtifact,   ///< The code computes the prediction and does not use it.
};

/// workers = ceil((queued + predicted) / B) - workers there; groups of at most 4 and at least as
/// deep as the SLO asks.
[[nodiscard]] WorkerPlan choose_workers(const WorkerDemand& demand, WorkerVariant variant);

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
