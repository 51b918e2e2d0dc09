#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/kv_moves.h"
#include "policy/kv_pressure.h"

namespace heddle::sim {

/// Prism's weight of a model as its first version has it [1/s^2]: requests per second by 1 / TTFT
/// objective. It does not tell models with small KV from models with large, as policy::kv_demand
/// does. `ttft` > 0.
[[nodiscard]] double request_demand(double requests_per_second, Duration ttft);

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

struct KvPlan {
  std::vector<policy::KvHome> homes{};  ///< By model.
  std::vector<ModelId> unplaced{};      ///< There is no room for these.
  double max_pressure = 0.0;            ///< Of all devices, once it is carried out.
  friend bool operator==(const KvPlan&, const KvPlan&) = default;
};

/// Where every model of the pool should be, so that the highest KV pressure is least. A device
/// never holds two parts of one model, and they share a host. Models that are not movable stay.
/// Pure; independent of the order of its arguments (ties by id).
/// O(log(1/precision) (M + D) log D), kGreedy O(M D).
[[nodiscard]] KvPlan plan_kv_placement(std::span<const policy::KvModel> models,
                                       std::span<const policy::KvDevice> devices,
                                       const KvPlanOptions& options);

/// Where to activate a model: the devices, as many as it has parts, that fit it and have the lowest
/// pressure once it is there. `loads` as kv_loads has them. nullopt where it fits nowhere.
/// Pure; ties by id. O(D log D).
[[nodiscard]] std::optional<std::vector<DeviceId>> choose_kv_home(
    const policy::KvModel& model, std::span<const policy::KvDevice> loads);

}  // namespace heddle::sim
