#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "core/serving.h"
#include "external/engine_host.h"

namespace heddle::manager {

/// Puts what a device's worker has counted into what is shown of the device.
inline void add_counts(const agent::Agent& agent, core::DeviceStatus& device) {
  const rpc::WorkerStats stats = agent.stats(device.id);
  device.restarts = agent.restarts(device.id);
  agent::WorkerHealth health = agent.health(device.id);
  device.trouble = std::move(health.trouble);
  device.suspected = health.suspected;
  device.hung = health.hung;
  device.prefixes = stats.prefixes;
  device.dropped_pages = stats.dropped_pages;
  device.steps = stats.steps;
  device.late_steps = stats.late_steps;
  device.slow_steps = stats.slow_steps;
  device.overrun_steps = stats.overrun_steps;
  device.copied_bytes = stats.copied_bytes;
  device.peer_load_bytes = stats.peer_load_bytes;
  device.peer_assist_bytes = stats.peer_assist_bytes;
  device.kept_bytes = stats.kept_bytes;
  device.guest_busy = stats.guest_busy;
  device.guest_wait = stats.guest_wait;
  device.guest_layers = stats.guest_layers;
  device.guest_layers_alone = stats.guest_layers_alone;
}

/// What is wrong now with workers, the host and engines, for people.
inline std::vector<std::string> troubles_of(const agent::Agent& agent,
                                            const external::EngineHost& engines) {
  std::vector<std::string> all = agent.troubles();
  std::vector<std::string> of_engines = engines.troubles();
  for (std::string& trouble : of_engines) {
    all.push_back(std::move(trouble));
  }
  return all;
}

}  // namespace heddle::manager
