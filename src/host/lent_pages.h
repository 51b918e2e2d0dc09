#pragma once

#include <algorithm>

#include "core/serving.h"
#include "external/engine_host.h"

namespace heddle::host {

/// A worker's ledger knows its own pages; adds those that it lent to engines.
inline void add_lent(const external::EngineHost& host, core::DeviceStatus& device) {
  if (host.usage(device.id)) {
    return;  // A device of engines alone.
  }
  auto& external = device.usage.by_kind.at(static_cast<std::size_t>(ledger::LeaseKind::kExternal));
  for (const core::EngineStatus& engine : host.engines()) {
    const bool here = engine.device == device.id ||
                      std::ranges::find(engine.further, device.id) != engine.further.end();
    if (here && device.up) {
      device.usage.total += engine.reserved_pages;
      external.reserved += engine.reserved_pages;
      external.held += std::min(engine.held_pages, engine.reserved_pages);
    }
  }
}

}  // namespace heddle::host
