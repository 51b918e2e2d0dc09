#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/replica_map.h"
#include "sim/cluster.h"
#include "sim/links.h"
#include "sim/simulated_engine.h"

namespace heddle::sim {

class World;

/// One set of weights on one set of GPUs, from the start of its load to its eviction.
using policy::ReplicaId;
/// A request that has arrived and not ended; numbers are used again afterwards.
using LiveId = Id<struct LiveIdTag>;

enum class ReplicaPhase : std::uint8_t {
  kWaiting,  ///< For pages of its GPUs.
  kLoading,
  kWarm,      ///< Loaded; serves nobody.
  kStarting,  ///< An engine takes it over.
  kServing,
  kDraining,  ///< Finishes what it has.
  kEvicting,  ///< Its pages are being unmapped.
  kGone,
};

/// Why an action was taken; kept with it for people.
enum class Reason : std::uint8_t {
  kStatic,       ///< Placed before the first request.
  kRunning,      ///< An instance of the model serves.
  kHit,          ///< Its weights are resident.
  kAttach,       ///< Its weights are being loaded already.
  kMiss,         ///< Nothing of it is there.
  kScaleUp,      ///< Load calls for another instance.
  kScaleDown,    ///< Load does not call for this instance.
  kIdle,         ///< Unused for longer than it is kept.
  kMakeRoom,     ///< Another model needs the pages.
  kForecast,     ///< The forecast says that it will be needed.
  kBurst,        ///< The forecast's peak says so.
  kGrace,        ///< Pages that a draining instance no longer needs.
  kGroup,        ///< Several hosts load parts of it at once.
  kConsolidate,  ///< A pipeline becomes one worker.
  kTurn,         ///< Its queue's turn on this GPU.
  kPressure,     ///< KV pressure is least there.
  kBalance,      ///< KV pressure is evened out.
  kOnTime,       ///< It can meet its deadline.
  kLate,         ///< It cannot; others go first.
  kSwap,         ///< A suspended engine returns.
  kOffload,      ///< Guests' KV goes to a colder device.
  kFault,        ///< Something failed.
  kTooLarge,     ///< It would not fit even alone.
  kQuota,        ///< Shares of memory follow use.
  kCheapest,     ///< Of the plans that meet the objective.
};
[[nodiscard]] std::string_view name(Reason reason);

/// Where weights are loaded from.
enum class WeightSource : std::uint8_t {
  kRemote,   ///< The store, over the NIC.
  kHost,     ///< Host memory, over PCIe.
  kSpread,   ///< Host memory through all GPUs of the server, then NVLink.
  kDisk,     ///< Local disk.
  kNothing,  ///< No link moves them: they are part of a suspended engine, or of `after`.
};

/// One worker of a replica: one GPU, or tp of them.
struct StageSpec {
  std::vector<GpuId> gpus{};
  double weights = 1;        ///< Part of the model's layers.
  bool reserve_all = false;  ///< Pages for the whole model (a full-memory worker).
};

/// Where a hot replica keeps part of its KV (WEAVER): the paper's way, or heddle's. Neither: no
/// new sequence goes there, and what was lent is recalled.
struct Weave {
  GpuId host{};            ///< Another GPU of the same server.
  double share = 0;        ///< The paper's: of new sequences, all of whose KV is there.
  bool split = true;       ///< Then long kernels there may be split, so that guests wait less.
  std::int64_t pages = 0;  ///< heddle's: lent there at most, to first positions of decoding
                           ///< sequences (policy::choose_moves).
};

/// How a replica comes to be: ready at
///     max(before + fetch, beside) [+ copy unless streamed] + bytes * per_byte + after.
struct StartSpec {
  ModelId model{};
  std::vector<StageSpec> stages{};
  WeightSource source = WeightSource::kHost;
  Duration before{};
  Duration beside{};
  bool stream = true;   ///< Copies to the GPU as bytes arrive; else afterwards.
  double per_byte = 0;  ///< Seconds per byte that no link is used.
  Duration after{};
  double start_part = 1;  ///< Serves once this part of the weights is there.
  double present = 0;     ///< Part of the weights that need not be loaded.
  LinkClass link_class = LinkClass::kActivation;
  Instant deadline{};           ///< For links that serve by deadline.
  bool serve = true;            ///< Else it stays warm.
  bool cache_image = false;     ///< What is fetched stays in host memory.
  double value = 0;             ///< What loses least is revoked first, while warm.
  bool revocable_idle = false;  ///< So it is while it serves and has no requests.
  std::int64_t kv_limit = -1;   ///< Pages per GPU for KV; -1: all that is free.
  bool kv_kept = false;         ///< These are its own from the start on, used or not.
  double compute_share = 1;     ///< A fixed slice of the GPU's compute.
  std::int64_t mps_percent = 100;
  std::int64_t grow_ahead = INT64_MAX;
};

enum class NoticeKind : std::uint8_t {
  kStart,    ///< The world begins; nothing has arrived.
  kArrival,  ///< `request` waits to be dispatched (again, after a fault or stop).
  kFirstToken,
  kFinished,  ///< `request` on `replica`; both still there to be looked at.
  kServing,   ///< `replica` takes requests.
  kWarm,      ///< `replica` is loaded.
  kDrained,   ///< `replica` has finished its requests and is warm.
  kGone,      ///< `replica`'s pages are free; only its id and its first `gpu` mean anything.
  kMerged,    ///< The pipeline `replica` is one worker now.
  kStarved,   ///< `replica` has requests and cannot get pages.
  kGpuDown,   ///< `gpu` failed; its replicas are gone, their requests arrive again.
  kGpuUp,
  kTimer,  ///< `tag` as it was set.
};

struct Notice {
  NoticeKind kind{};
  LiveId request{};
  ReplicaId replica{};
  GpuId gpu{};
  ModelId model{};
  std::uint64_t tag = 0;
};

/// What a control plane can have done. Each takes as long as the performance model and the
/// contended links say; what is impossible changes nothing and says so.
class Actions {
 public:
  virtual ~Actions() = default;
  /// Hands a waiting request to a serving replica. False: it does not serve, or could never hold
  /// it.
  virtual bool dispatch(LiveId request, ReplicaId replica, Reason reason) = 0;
  /// Ends a request unserved.
  virtual void reject(LiveId request, Reason reason) = 0;
  /// Begins a replica; it waits for pages that are being freed.
  virtual ReplicaId start(const StartSpec& spec, Reason reason) = 0;
  /// A warm replica begins to serve, `after` from now. False: no pages for its engine.
  virtual bool serve(ReplicaId replica, Duration after, Reason reason) = 0;
  /// A load that goes on becomes urgent, and serves when done.
  virtual void attach(ReplicaId replica, Reason reason) = 0;
  /// No more requests for it; warm when those it has are done.
  virtual void drain(ReplicaId replica, Reason reason) = 0;
  /// Its pages are freed; requests it has arrive again. `for_whom` needs them.
  virtual void evict(ReplicaId replica, Reason reason, std::optional<ModelId> for_whom) = 0;
  /// Takes its requests away, which arrive again; it is warm.
  virtual void stop(ReplicaId replica, Reason reason) = 0;
  /// A pipeline becomes its worker `stage`: the rest of the weights, then KV, move there. Other
  /// full-memory workers become replicas of their own when `split`.
  virtual void merge(ReplicaId replica, std::size_t stage, bool split, Reason reason) = 0;
  /// `hot` keeps KV as guests on another GPU, as `how` has it. The paper's stay until they end;
  /// all go where a load or an engine there needs their pages. What is lent and empty is free to
  /// the GPU.
  virtual void weave(ReplicaId hot, const Weave& how, Reason reason) = 0;
  virtual void set_kv_limit(ReplicaId replica, std::int64_t pages, Reason reason) = 0;
  virtual void set_value(ReplicaId replica, double value) = 0;
  /// kTimer with `tag` at `at`.
  virtual void timer(Instant at, std::uint64_t tag) = 0;
};

/// How engines on one GPU share its compute.
enum class ComputeSharing : std::uint8_t {
  kTurns,        ///< Models of one engine take turns by steps, so their GPU work adds up.
  kAddUp,        ///< So it does of engines in processes of their own, by the GPU's co_running.
  kByMemory,     ///< Each has its part of the memory while others are active.
  kIndependent,  ///< Fixed slices or percentages.
};

/// What decides: one policy set. Told of everything that happens, it looks at the world and asks
/// for actions. It has no clock and draws no randomness.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  [[nodiscard]] virtual ComputeSharing compute_sharing() const { return ComputeSharing::kAddUp; }
  [[nodiscard]] virtual LinkRule link_rule() const { return LinkRule::kFairShare; }
  /// Sum of |forecast - load| over sum of load so far; nullopt where it makes no forecasts.
  [[nodiscard]] virtual std::optional<double> forecast_error() const { return std::nullopt; }
  virtual void decide(const Notice& notice, const World& world, Actions& actions) = 0;
};

}  // namespace heddle::sim
