#include "core/manager/shortages.h"

#include <chrono>

#include "base/units.h"
#include "core/manager/index.h"

namespace heddle::core::manager {
namespace {

/// A model that lacks KV takes what was freed for it within this, or others may.
constexpr Duration kOwed = std::chrono::seconds(1);

}  // namespace

void Shortages::heard(DeviceId device, const DeviceReport& report) {
  count(device);
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.sequences = report.short_sequences + shortage.engines;
  shortage.own_pages = report.short_pages;
  shortage.pages = report.short_pages + shortage.engine_pages;
  shortage.model =
      report.short_sequences > 0 || shortage.engines == 0 ? report.short_model : shortage.engine;
  reindex(state_, device);
  for (const ResidentReport& resident : report.models) {
    hear_late(state_.devices.at(device), resident);
  }
}

void Shortages::engines_lack(DeviceId device,
                             std::int64_t engines,
                             std::int64_t pages,
                             ModelId engine) {
  Shortage& shortage = state_.devices.at(device).shortage;
  if (engines == shortage.engines && pages == shortage.engine_pages && engine == shortage.engine) {
    return;
  }
  count(device);
  const std::int64_t own = shortage.sequences - shortage.engines;
  shortage.engines = engines;
  shortage.engine_pages = pages;
  shortage.engine = engine;
  shortage.sequences = own + engines;
  shortage.pages = shortage.own_pages + pages;
  shortage.model = own == 0 && engines > 0 ? engine : shortage.model;
  reindex(state_, device);
}

void Shortages::hear_late(DeviceState& device, const ResidentReport& resident) {
  const auto found = device.instances.find(resident.model);
  if (found != device.instances.end()) {
    found->second.late = resident.late;
  }
}

void Shortages::count_unborne(ModelId id, std::int64_t requests) {
  ModelState& model = state_.models.at(id);
  Unborne& unborne = model.unborne;
  const double passed = to_seconds(state_.now - unborne.until);
  unborne.waited =
      requests == 0 ? 0 : unborne.waited + static_cast<double>(unborne.requests) * passed;
  unborne.requests = requests;
  unborne.until = state_.now;
  if (requests > 0) {
    model.unborne_at = state_.now;
  }
}

void Shortages::pay_unborne(ModelId model, double waited) {
  state_.models.at(model).unborne.waited -= waited;
}

void Shortages::clear(DeviceId device) {
  Shortage& shortage = state_.devices.at(device).shortage;
  shortage.sequences = shortage.pages = shortage.own_pages = 0;
  shortage.engines = shortage.engine_pages = 0;
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

Instant Shortages::owe(DeviceId device, ModelId model, std::int64_t pages) {
  const Instant until = state_.now + kOwed;
  state_.devices.at(device).owed = {.model = model, .pages = pages, .until = until};
  replace(state_, device);
  return until;
}

void Shortages::recalled(DeviceId device, Instant until) {
  state_.devices.at(device).shortage.recall_at = until;
}

}  // namespace heddle::core::manager
