#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// A model that holds pages of a device.
struct ResidentView {
  ModelId model{};
  std::int64_t pages = 0;  ///< That its eviction frees, KV included.
  std::int64_t queue = 0;  ///< Its requests, waiting and in flight. 0: idle.
  Duration oldest_wait{};  ///< How long the oldest of these has waited or run; beside engines.
  Instant last_used{};     ///< When its newest request came or its last one ended.
  Instant serving_since{};
  Duration min_residence{};  ///< Not drained while its stay is shorter. Idle models go at once,
                             ///< but for external engines.
  bool pinned = false;       ///< Never evicted.
  bool displaced = false;    ///< May not stay when the wanted model comes, whatever room there is.
  /// To take it out and bring it back; known of external engines, 0 of models of our own,
  /// which cost milliseconds.
  Duration swap{};
  Duration leaves{};  ///< Until it has left, by estimate; 0: at once.
  /// What losing it is expected to cost [s], as policy/value.h has it; 0: not known, the least
  /// recently used goes first.
  double worth = 0;
  bool in_transition = false;  ///< Loading, draining or being evicted: left alone.
  /// It can run there with nothing else beside it, so its worth is lost to the wanted model's
  /// running, though it may stay (a shard).
  bool runs_alone = false;
};

/// The least valuable of `residents` whose pages, with the `free_pages` there are, make
/// `need_pages`: shortest queue first (waiting and in flight), then the least worth for its pages,
/// then least recently used, and of these none that the others make unnecessary. Pinned ones and
/// ones in transition do not count. nullopt when all of them are not enough. Pure; O(R log R).
[[nodiscard]] std::optional<std::vector<ModelId>> choose_victims(
    std::span<const ResidentView> residents, std::int64_t free_pages, std::int64_t need_pages);

/// The same with their views, of candidates that are neither pinned nor in transition. Where
/// external engines are among those that could go, the cheapest set instead (preemption_cost).
[[nodiscard]] std::optional<std::vector<ResidentView>> least_valuable(
    std::vector<ResidentView> candidates,
    std::int64_t free_pages,
    std::int64_t need_pages,
    Instant now);

}  // namespace heddle::policy
