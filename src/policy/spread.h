#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"

/// How the requests of a model are spread over its instances, and when these are too few.
namespace heddle::policy {

/// An instance as spreading sees it.
struct InstanceLoad {
  std::int64_t in_flight = 0;  ///< Requests that it was sent and that have not ended.
  std::int64_t late = 0;       ///< Of these, waiting ones whose first token will be late there.
  bool serves = false;         ///< It takes requests.
  bool complete = false;       ///< All its weights are there.
  bool open = false;           ///< Nobody waits on its device: requests from elsewhere may come.
};

/// How many requests that wait at instance `from` go to others of its model that are open: no more
/// than will be late there, or than are above the `batch` that a device should bear; none where it
/// would wait as long. Half of what two instances differ by makes them alike. `from` < size; pure,
/// O(instances).
[[nodiscard]] std::int64_t movable(std::span<const InstanceLoad> instances,
                                   std::size_t from,
                                   std::int64_t batch);

/// Requests that wait for one more instance: those that will be late, less what instances on their
/// way will bear, or those of `in_system` that are more than all should bear. None where the model
/// is nowhere: that is placement.h's. Instances that do not serve, or are not complete, are on
/// their way. Pure; O(instances).
[[nodiscard]] std::int64_t unborne(std::span<const InstanceLoad> instances,
                                   std::int64_t in_system,
                                   std::int64_t batch);

/// Whether one instance more is worth its load [s] beside one that requests wait for: it answers
/// them so much sooner that this exceeds the load and what is `lost` for it [s].
[[nodiscard]] bool pays_beside(Duration waited_for, Duration more, Duration load, double lost);

}  // namespace heddle::policy
