#pragma once

#include "core/serving.h"
#include "rpc/messages.h"

namespace heddle::manager {

/// Puts what a device's worker has counted into what is shown of the device.
inline void add_counts(const rpc::WorkerStats& stats, core::DeviceStatus& device) {
  device.prefixes = stats.prefixes;
  device.dropped_pages = stats.dropped_pages;
  device.steps = stats.steps;
  device.late_steps = stats.late_steps;
}

}  // namespace heddle::manager
