#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "cli/simulate_trace.h"

namespace heddle::cli {

struct PlanOptions {
  TraceOptions trace{};
  std::string hardware{};  ///< A cluster file; each of its entries is a kind of server.
  std::string models{};
  std::string perf{};  ///< As SimulateOptions has it.
  std::string policy = "heddle";
  double target = 99;      ///< Percent of all requests that are to meet their objectives.
  std::int64_t most = 64;  ///< Servers of a kind at most.
  std::string initial = "empty";
  Duration warmup{};
  std::string json{};  ///< Files to write; "-" is stdout.
  std::string html{};
};

/// Exit status where no number of servers of any kind is enough.
inline constexpr int kNeverEnoughStatus = 3;

/// Says how many servers of which kind a workload needs, as plan_capacity() finds out.
int plan(const PlanOptions& options);

}  // namespace heddle::cli
