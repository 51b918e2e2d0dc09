#include "core/manager/shortages.h"

#include "base/units.h"

namespace heddle::core::manager {

void Shortages::heard(DeviceId device, const DeviceReport& report) {
  count(device);
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.sequences = report.short_sequences;
  shortage.pages = report.short_pages;
  shortage.model = report.short_model;
}

void Shortages::clear(DeviceId device) {
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.sequences = shortage.pages = 0;
}

void Shortages::count(DeviceId device) {
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.waited = shortage.sequences == 0
                        ? 0
                        : shortage.waited + static_cast<double>(shortage.sequences) *
                                                to_seconds(state_.now - shortage.until);
  shortage.until = state_.now;
}

void Shortages::pay(DeviceId device, double waited) {
  state_.devices.at(device).shortage.waited -= waited;
}

void Shortages::recalled(DeviceId device, Instant until) {
  state_.devices.at(device).shortage.recall_at = until;
}

}  // namespace heddle::core::manager
