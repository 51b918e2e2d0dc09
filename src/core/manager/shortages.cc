#include "core/manager/shortages.h"

#include "base/units.h"
#include "core/manager/index.h"

namespace heddle::core::manager {

void Shortages::heard(DeviceId device, const DeviceReport& report) {
  count(device);
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.sequences = report.short_sequences;
  shortage.pages = report.short_pages;
  shortage.model = report.short_model;
  reindex(state_, device);
}

void Shortages::clear(DeviceId device) {
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.sequences = shortage.pages = 0;
  reindex(state_, device);
}

void Shortages::count(DeviceId device) {
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.waited = shortage.sequences == 0
                        ? 0
                        : shortage.waited + static_cast<double>(shortage.sequences) *
                                                to_seconds(state_.now - shortage.until);
  shortage.until = state_.now;
  reindex(state_, device);
}

void Shortages::pay(DeviceId device, double waited) {
  state_.devices.at(device).shortage.waited -= waited;
  reindex(state_, device);
}

void Shortages::recalled(DeviceId device, Instant until) {
  state_.devices.at(device).shortage.recall_at = until;
}

}  // namespace heddle::core::manager
