#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// A model of the shared pool, as placement sees it.
struct KvModel {
  ModelId model{};
  double demand = 0.0;         ///< w: how fast its KV wants to grow, of all parts; see kv_demand.
  std::int64_t bytes = 0;      ///< Weights, of all parts.
  std::int64_t parts = 1;      ///< Tensor parallel degree: so many devices, an even share on each.
  std::vector<DeviceId> at{};  ///< Where its parts are; empty where it is to be activated.
  bool movable = true;         ///< Not while it has guests, or was moved a moment ago.
};

/// A device of the shared pool. `demand` and `taken` are of what is there but not among the models
/// passed beside it: guests, pipeline stages; of everything where no models are passed.
struct KvDevice {
  DeviceId id{};
  HostId host{};           ///< The parts of one model share a host.
  std::int64_t bytes = 0;  ///< For weights and KV.
  double demand = 0.0;
  std::int64_t taken = 0;
};

/// Prism's weight of a model as its later version prints it [bytes/s^2]: tokens per second (prompt
/// tokens admitted and tokens decoded), by the KV of one [bytes], by 1 / TPOT objective.
/// `tpot` > 0.
[[nodiscard]] double kv_demand(double tokens_per_second, std::int64_t kv_bytes, Duration tpot);
/// The same as the first version has it [1/s^2]: requests per second by 1 / TTFT objective. It does
/// not tell models with small KV from models with large.
[[nodiscard]] double request_demand(double requests_per_second, Duration ttft);

/// KVPR, the KV pressure of a device: demand / memory that is left for KV. Infinite where none is.
[[nodiscard]] double kv_pressure(double demand, std::int64_t kv_bytes);
[[nodiscard]] double kv_pressure(const KvDevice& device);

/// `devices` with what the models put on them added, by id. Models on no device of these are left
/// out. O(M log D).
[[nodiscard]] std::vector<KvDevice> kv_loads(std::span<const KvModel> models,
                                             std::span<const KvDevice> devices);

enum class KvPlanner : std::uint8_t {
  /// Prism, Algorithm 1, as printed: by falling demand, each model to the device whose pressure is
  /// least before it comes; it stays where it is unless that is `tau` better. Ours: it must fit.
  kPaper,
  /// The same with the pressure after it comes.
  kGreedy,
  /// On W_g + T * M_g <= T * C_g, which says exactly that the pressure W_g / (C_g - M_g) is at most
  /// T and is linear: bin packing with items w + T * m, so a binary search for the least T at which
  /// best fit decreasing packs. The inequality is exact, the packing a heuristic.
  kThreshold,
};

struct KvPlanOptions {
  KvPlanner planner = KvPlanner::kThreshold;
  double tau = 0.0;         ///< kPaper, kGreedy: least gain in pressure that moves a model.
  double slack = 0.05;      ///< kThreshold: pressure beyond the least that it costs not to move.
  double precision = 1e-4;  ///< kThreshold: of T, relative.
};

struct KvHome {
  ModelId model{};
  std::vector<DeviceId> devices{};  ///< One per part, by id.
  friend bool operator==(const KvHome&, const KvHome&) = default;
};

struct KvPlan {
  std::vector<KvHome> homes{};      ///< By model.
  std::vector<ModelId> unplaced{};  ///< There is no room for these.
  double max_pressure = 0.0;        ///< Of all devices, once it is carried out.
  friend bool operator==(const KvPlan&, const KvPlan&) = default;
};

/// Where every model of the pool should be, so that the highest KV pressure is least. A device
/// never holds two parts of one model, and they share a host. Models that are not movable stay.
/// Pure; independent of the order of its arguments (ties by id).
/// O(log(1/precision) (M + D) log D), kGreedy O(M D).
[[nodiscard]] KvPlan plan_kv_placement(std::span<const KvModel> models,
                                       std::span<const KvDevice> devices,
                                       const KvPlanOptions& options);

}  // namespace heddle::policy
