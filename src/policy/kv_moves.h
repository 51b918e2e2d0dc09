#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/kv_placement.h"

namespace heddle::policy {

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

/// Where to activate a model: the devices, as many as it has parts, that fit it and have the lowest
/// pressure once it is there. `loads` as kv_loads has them. nullopt where it fits nowhere.
/// Pure; ties by id. O(D log D).
[[nodiscard]] std::optional<std::vector<DeviceId>> choose_kv_home(const KvModel& model,
                                                                  std::span<const KvDevice> loads);

/// How long a model must have been idle before it may be evicted: the shortest gap after which the
/// rest of a gap is longer on average than activating the model again takes. `gaps` are past idle
/// times of the model, in any order. With fewer than kFewestGaps of them, or when the rest never is
/// longer, max(10 s, 5 * activation). (Prism: "determined by analysing the idle interval
/// distribution".) O(n log n).
inline constexpr std::size_t kFewestGaps = 8;
[[nodiscard]] Duration idle_threshold(std::span<const Duration> gaps, Duration activation);

/// A resident model that nobody asks for at present.
struct IdleModel {
  ModelId model{};
  std::int64_t bytes = 0;  ///< That its eviction frees.
  Duration idle{};         ///< Since its last request ended.
  Duration threshold{};    ///< idle_threshold.
  Duration activation{};   ///< To get it back.
  Duration ttft{};         ///< Its objective for the first token.
  double value = 0.0;      ///< Of keeping it [1/byte], value_density in policy/value.h.
  bool pinned = false;     ///< The operator said so, or it has guests.
};

enum class IdleOrder : std::uint8_t {
  kPaper,  ///< Prism: the longest objective first, since it bears an activation best.
  kValue,  ///< The least value per byte first, which counts rare use and size as well.
};

/// The idle models to evict so that `need_bytes` come free; nullopt when they are not enough. Only
/// ever on demand, only after their thresholds; models whose objective an activation alone would
/// break go last. None that the others make unnecessary. Pure; ties by id. O(n log n).
[[nodiscard]] std::optional<std::vector<ModelId>> choose_idle_evictions(
    std::span<const IdleModel> models, std::int64_t need_bytes, IdleOrder order);

}  // namespace heddle::policy
