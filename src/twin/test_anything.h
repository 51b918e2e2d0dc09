#pragma once

#include <cstdint>

#include "base/rng.h"
#include "twin/test_world_options.h"

/// For tests: worlds in which everything can go wrong.
namespace heddle::twin::test {

/// Everything at once, in measures that the seed decides.
inline WorldOptions anything(std::uint64_t seed) {
  Rng rng(seed ^ 0x5eedU);
  const auto chance = [&rng](std::uint64_t of) { return rng.below(of) == 0; };
  return {.seed = seed,
          .devices = 1 + static_cast<int>(rng.below(3)),
          .models = 2 + static_cast<int>(rng.below(5)),
          .host_pages = 8 + static_cast<std::int64_t>(rng.below(30)),
          .device_pages = 15 + static_cast<std::int64_t>(rng.below(12)),
          .uneven_pages = chance(3) ? static_cast<std::int64_t>(rng.below(10)) : 0,
          .copy = chance(3),
          .requests = 10 + static_cast<int>(rng.below(50)),
          .arrivals = 20ms + 10ms * static_cast<int>(rng.below(40)),
          .deaths = chance(2) ? static_cast<int>(rng.below(8)) : 0,
          .read_failures = chance(3) ? static_cast<int>(rng.below(12)) : 0,
          .open_failures = chance(3) ? static_cast<int>(rng.below(6)) : 0,
          .cancels = chance(2),
          .admin = chance(2),
          .reloads = chance(3),
          .pin_one = chance(5),
          .prefix_cache = chance(3) ? 0 : 1 + static_cast<std::int64_t>(rng.below(100)),
          .ttft = 1ms * static_cast<int>(1 + rng.below(200)),
          .queue = chance(4) ? policy::QueueRule::kArrival : policy::QueueRule::kMooreHodgson,
          .fixed_parts = chance(4) ? 2 + static_cast<std::int64_t>(rng.below(3)) : 0,
          .graph_pages = chance(3) ? static_cast<std::int64_t>(rng.below(4)) : 0,
          .stuck_graphs = chance(3)};
}

/// The same with two devices or more, and some models that are sharded over two.
inline WorldOptions anything_sharded(WorldOptions options) {
  Rng rng(options.seed ^ 0xc07U);
  options.devices = 2 + static_cast<int>(rng.below(4));
  options.sharded = 1 + static_cast<int>(rng.below(3));
  options.beside = rng.below(2) == 0;
  return options;
}

/// Looks ahead every 5 ms, in windows of 50 ms.
inline core::PlannerOptions short_planner() {
  return {.period = 5ms, .calendar = {.window = 50ms, .windows_per_day = 8}};
}

/// The same with a planner of which some parts decide.
inline WorldOptions anything_planned(std::uint64_t seed) {
  WorldOptions options = anything(seed);
  Rng rng(seed ^ 0xb1a0U);
  const auto chance = [&rng](std::uint64_t of) { return rng.below(of) == 0; };
  options.batch = 1 + static_cast<std::int64_t>(rng.below(6));
  options.planner = short_planner();
  options.planner.prewarm = !chance(4);
  options.planner.value = !chance(4);
  options.planner.pressure = !chance(4);
  options.planner.replicas = !chance(4);
  options.planner.share = !chance(4);
  options.planner.evict = !chance(6);
  return options;
}

}  // namespace heddle::twin::test
