#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "policy/replica_map.h"

namespace heddle::sim {

enum class LaunchVariant : std::uint8_t {
  kLeastLost,  ///< WarmServe's text: what dies for the instance is worth the least in sum.
  kFirst,      ///< Its authors' code: the first replica found, else the fewest replicas that die.
};

enum class LaunchOutcome : std::uint8_t {
  kHit,     ///< `replica` is loaded: transfer it to the instance.
  kAttach,  ///< `replica` is loading: start on the layers it has and make its load urgent.
  kMiss,    ///< Load the model on `devices`.
  kWait,    ///< No group of devices can be had now.
};

struct LaunchWant {
  ModelId model{};
  std::int64_t devices = 1;
  std::int64_t pages = 0;  ///< On each device, at the least: weights and the smallest KV cache.
};

struct Launch {
  LaunchOutcome outcome = LaunchOutcome::kWait;
  policy::ReplicaId replica{};            ///< Of kHit and kAttach.
  std::vector<DeviceId> devices{};        ///< That the instance takes whole, in order of its ranks.
  std::vector<policy::ReplicaId> dies{};  ///< All other replicas that touch them, everywhere;
                                          ///< cancel those that load.
  policy::LostWorth lost{};               ///< What these were worth.
  friend bool operator==(const Launch&, const Launch&) = default;
};

/// Where a new instance of a model starts (WarmServe section 5.2): on a loaded replica whose
/// devices no instance has; else on one that is loading; else on the group of one server where the
/// least is lost. Among equals: the fewest replicas that die, then the lowest device. Groups with a
/// pinned replica of another model are left alone.
/// A hit or attach costs O(replicas of the model); a miss O(devices and the replicas on them).
[[nodiscard]] Launch choose_launch(const policy::ReplicaMap& map,
                                   const LaunchWant& want,
                                   LaunchVariant variant);

}  // namespace heddle::sim
