#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::sim {

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

}  // namespace heddle::sim
