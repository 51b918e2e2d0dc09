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
/// KVPR, the KV pressure of a device: demand / memory that is left for KV. Infinite where none is.
[[nodiscard]] double kv_pressure(double demand, std::int64_t kv_bytes);
[[nodiscard]] double kv_pressure(const KvDevice& device);

/// `devices` with what the models put on them added, by id. Models on no device of these are left
/// out. O(M log D).
[[nodiscard]] std::vector<KvDevice> kv_loads(std::span<const KvModel> models,
                                             std::span<const KvDevice> devices);

}  // namespace heddle::policy
