#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/replay.h"

namespace heddle::cli {

struct SimulateOptions {
  ReplayOptions replay{};
  std::vector<std::string> policies{"heddle"};  ///< `name` or `name:flag=value,flag=value`.
  std::string sweep{};                          ///< "rps=5..30" or "rps=5..30:2.5": by that step.
  std::string faults{};                         ///< A script, or "random:SEED:COUNT".
  std::string json{};                           ///< Files to write; "-" is stdout.
  std::string csv{};
  std::string html{};
  bool check = false;  ///< Check all invariants after every event.
  std::optional<std::uint64_t> explain{};
};

/// "a,b:x=1,y=2,c" apart: a, b:x=1,y=2 and c.
[[nodiscard]] std::vector<std::string> split_policies(const std::string& text);

/// "rps=5..30:2.5": rates from 5 to 30 by steps of 2.5. Without a step, six of them.
Result<std::vector<double>> parse_sweep(std::string_view text);

/// Exit status of a run in which a policy came to a stop with requests left.
inline constexpr int kStuckStatus = 3;

/// Replays a workload on a modelled cluster under one policy set or several, and reports. Prints
/// which requests were never served, and why; kStuckStatus where a policy came to a stop by that.
int simulate(const SimulateOptions& options);

}  // namespace heddle::cli
