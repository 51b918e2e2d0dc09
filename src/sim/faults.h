#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "sim/world.h"

namespace heddle::sim {

/// Something that breaks, and when it is mended.
struct FaultPlan {
  World::Fault fault{};
  std::uint64_t target = 0;  ///< GPU or host.
  Instant at{};
  Duration lasts{};   ///< 0: it is never mended.
  double factor = 0;  ///< Of a link's speed while it lasts.
};

/// Reads a script: a line each of `TIME KIND TARGET for DURATION [at FACTOR]`, with KIND one of
/// gpu, host, nic, pcie, restore, worker; `#` begins a comment. "90s nic 2 for 5m at 0.1".
/// kInvalidArgument names the line and what would be right.
Result<std::vector<FaultPlan>> parse_faults(std::string_view text,
                                            std::string_view file,
                                            std::size_t gpus,
                                            std::size_t hosts);

/// `count` faults of all kinds within `span`, each mended.
[[nodiscard]] std::vector<FaultPlan> random_faults(
    Rng rng, std::size_t count, Duration span, std::size_t gpus, std::size_t hosts);

/// Plans them in a world that has not begun.
void inject(World& world, const std::vector<FaultPlan>& plans);

}  // namespace heddle::sim
