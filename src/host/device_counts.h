#pragma once

#include <utility>

#include "agent/agent.h"
#include "core/serving.h"

namespace heddle::host {

/// Puts what a device's worker has counted into what is shown of the device.
inline void add_counts(const agent::Agent& agent, core::DeviceStatus& device) {
  const rpc::WorkerStats stats = agent.stats(device.id);
  device.restarts = agent.restarts(device.id);
  agent::WorkerHealth health = agent.health(device.id);
  device.trouble = std::move(health.trouble);
  device.suspected = health.suspected;
  device.hung = health.hung;
  device.prefixes = stats.prefixes;
  device.adapters = stats.adapters;
  device.experts = stats.experts;
  device.dropped_pages = stats.dropped_pages;
  device.steps = stats.steps;
  device.late_steps = stats.late_steps;
  device.slow_steps = stats.slow_steps;
  device.overrun_steps = stats.overrun_steps;
  device.copied_bytes = stats.copied_bytes;
  device.peer_load_bytes = stats.peer_load_bytes;
  device.peer_assist_bytes = stats.peer_assist_bytes;
  device.kept_bytes = stats.kept_bytes;
  device.kv_store = stats.kv_store;
  device.guest_busy = stats.guest_busy;
  device.guest_wait = stats.guest_wait;
  device.guest_layers = stats.guest_layers;
  device.guest_layers_alone = stats.guest_layers_alone;
}

}  // namespace heddle::host
