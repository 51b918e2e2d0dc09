#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/kv_pressure.h"

namespace heddle::policy {

/// Where a plan puts a model.
struct KvHome {
  ModelId model{};
  std::vector<DeviceId> devices{};  ///< One per part, by id.
  friend bool operator==(const KvHome&, const KvHome&) = default;
};

/// When moving a model is worth it.
struct KvMoveOptions {
  std::int64_t most = 2;            ///< Moves in one tick.
  Duration horizon{};               ///< For how long the present demand is expected to last.
  double bytes_per_second = 0.0;    ///< At which weights get to another device; > 0.
  std::span<const KvHome> homes{};  ///< If any: moves are made only to these.
};

struct KvMove {
  ModelId model{};
  DeviceId from{};
  DeviceId to{};
  double gain = 0.0;  ///< By how much the higher pressure of the two falls, relative.
  friend bool operator==(const KvMove&, const KvMove&) = default;
};

/// The moves worth making now, best first: each relieves the device of highest pressure that any
/// move relieves, by the model and to the device that leave the higher pressure of the two lowest,
/// and is made only if gain * horizon exceeds the time the weights take to move. Models of one part
/// only. Pure; independent of order. O((M + D) log D + most R D) for R models on a device.
[[nodiscard]] std::vector<KvMove> choose_kv_moves(std::span<const KvModel> models,
                                                  std::span<const KvDevice> devices,
                                                  const KvMoveOptions& options);

}  // namespace heddle::policy
