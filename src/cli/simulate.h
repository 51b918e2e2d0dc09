#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/simulate_trace.h"

namespace heddle::cli {

struct SimulateOptions {
  TraceOptions trace{};
  std::string cluster{};
  std::string models{};
  std::string perf = "data/perf";
  std::vector<std::string> policies{"heddle"};  ///< `name` or `name:flag=value,flag=value`.
  std::string sweep{};                          ///< "rps=5..30" or "rps=5..30/6": that many rates.
  std::string faults{};                         ///< A script, or "random:SEED:COUNT".
  std::string json{};                           ///< Files to write; "-" is stdout.
  std::string csv{};
  std::string html{};
  bool check = false;  ///< Check all invariants after every event.
  std::optional<std::uint64_t> explain{};
};

/// Replays a workload on a modelled cluster under one policy set or several, and reports.
int simulate(const SimulateOptions& options);

}  // namespace heddle::cli
