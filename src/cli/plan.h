#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "cli/capacity_plan.h"
#include "cli/replay.h"

namespace heddle::cli {

struct PlanOptions {
  ReplayOptions replay{};         ///< Each entry of its cluster file is a kind of server.
  std::string policy = "heddle";  ///< `name` or `name:flag=value,flag=value`.
  double target = 99;             ///< Percent of all requests that are to meet their objectives.
  std::int64_t most = 64;         ///< Servers of a kind at most.
  std::int64_t sample = CapacityQuestion::kSample;
  std::size_t threads = 0;  ///< 0: as many as there are cores, up to eight.
  std::string json{};       ///< Files to write; "-" is stdout.
  std::string html{};
};

/// Exit status where no number of servers of any kind is enough.
inline constexpr int kNeverEnoughStatus = 3;

/// Says how many servers of which kind a workload needs, as plan_capacity() finds out.
int plan(const PlanOptions& options);

}  // namespace heddle::cli
