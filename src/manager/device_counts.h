#pragma once

#include "agent/agent.h"
#include "core/serving.h"

namespace heddle::manager {

/// Puts what a device's worker has counted into what is shown of the device.
inline void add_counts(const agent::Agent& agent, core::DeviceStatus& device) {
  const rpc::WorkerStats stats = agent.stats(device.id);
  device.restarts = agent.restarts(device.id);
  device.prefixes = stats.prefixes;
  device.dropped_pages = stats.dropped_pages;
  device.steps = stats.steps;
  device.late_steps = stats.late_steps;
  device.slow_steps = stats.slow_steps;
  device.overrun_steps = stats.overrun_steps;
  device.copied_bytes = stats.copied_bytes;
  device.detoured_bytes = stats.detoured_bytes;
  device.relayed_bytes = stats.relayed_bytes;
}

}  // namespace heddle::manager
