#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/time.h"

namespace heddle::sim {

/// How a model is kept; the first that matches.
enum class ModelClass : std::uint8_t {
  kExternal,  ///< An external engine: suspended and resumed as a whole.
  kHot,       ///< Instances of its own, autoscaled; replicas for bursts.
  kTail,      ///< Not even in host memory: a cold start, perhaps of a pipeline.
  kCold,      ///< In host memory, activated into the shared pool when asked for.
  kWarm,      ///< Resident in the shared pool.
};
/// As in metric labels: "hot".
[[nodiscard]] std::string_view name(ModelClass model_class);

struct ClassInputs {
  bool external = false;
  std::int64_t parts = 1;    ///< Tensor parallel degree.
  double utilisation = 0.0;  ///< rho = L_A / B_eff: instances' worth of load, best expert.
  bool on_host = false;      ///< Host memory, or a device, has its weights.
  std::optional<Duration> median_gap{};  ///< g50 between its busy spells; nullopt: never idle yet.
  Duration activation{};                 ///< T_act from host memory.
};

/// The class that these numbers ask for, of a model that is in `present`:
///   external; hot if rho >= 0.5 (leaves below 0.3), or rho >= 0.2 with parts > 1; tail without a
///   host copy; cold if g50 >= 5 T_act; else warm.
[[nodiscard]] ModelClass wanted_class(const ClassInputs& inputs, ModelClass present);

/// The class of one model, which changes only when three ticks in a row ask for the same other one.
/// A value.
class ClassKeeper {
 public:
  explicit ClassKeeper(ModelClass start) : present_(start), wanted_(start) {}
  /// One tick, every 5 s, or when something of the inputs changed. Returns whether it changed.
  bool tick(const ClassInputs& inputs);
  [[nodiscard]] ModelClass present() const { return present_; }

  friend bool operator==(const ClassKeeper&, const ClassKeeper&) = default;

 private:
  static constexpr std::int64_t kTicks = 3;

  ModelClass present_;
  ModelClass wanted_;
  std::int64_t agreeing_ = 0;
};

/// Whether a model gets devices of its own when it runs: hot ones do, those of several parts from a
/// smaller load on, since one slow part stalls all. A rare model of several parts shares: it would
/// clear whole groups of devices for one request.
[[nodiscard]] bool runs_dedicated(ModelClass model_class);

/// What a device is used for; nobody sets it, it follows from who holds which lease.
enum class DeviceMode : std::uint8_t {
  kIdle,       ///< Nothing, or what costs nothing to revoke.
  kUniversal,  ///< Only weights that may be dropped at once.
  kDedicated,  ///< One instance has it.
  kGrace,      ///< One instance has it, and drains.
  kShared,     ///< Models of the shared pool, or pipeline stages.
  kExternal,   ///< An external engine.
};
[[nodiscard]] std::string_view name(DeviceMode mode);

/// What is on a device: numbers of leases and of instances.
struct DeviceFacts {
  std::int64_t external = 0;
  std::int64_t stages = 0;     ///< Of pipelines.
  std::int64_t shared = 0;     ///< Instances of models that do not run dedicated.
  std::int64_t dedicated = 0;  ///< Instances of models that do.
  bool draining = false;       ///< The dedicated one does.
  std::int64_t droppable = 0;  ///< Warm, idle or cached: class R1.
};
[[nodiscard]] DeviceMode device_mode(const DeviceFacts& facts);

enum class PoolChange : std::uint8_t { kKeep, kGrow, kShrink };

/// The shared pool, as the placement tick left it.
struct PoolView {
  double max_pressure = 0.0;  ///< Highest KVPR.
  std::optional<double>
      with_one_fewer{};    ///< The same, planned on one device fewer; nullopt: none.
  Duration missing_for{};  ///< For how long some warm model has missed its objective.
  bool universal = false;  ///< A universal or idle device could join.
};

struct PoolOptions {
  double grow_above = 0.0;    ///< T_hi, of pressure.
  double shrink_below = 0.0;  ///< T_lo < T_hi.
  Duration missing = std::chrono::seconds{30};
};

/// Whether the shared pool takes a universal device, gives one back, or neither: grows when the
/// highest pressure exceeds T_hi or a warm model misses for 30 s; shrinks when with one device
/// fewer it would stay below T_lo, and nobody misses.
[[nodiscard]] PoolChange choose_pool_change(const PoolView& view, const PoolOptions& options);

}  // namespace heddle::sim
