#include "core/manager/reservations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

/// That it needs on the device beside what is there of it.
std::int64_t pages_wanted(const State& state, const DeviceState& device, ModelId part) {
  const ModelState& model = state.models.at(part);
  if (model.external()) {
    return pages_to_come(state, device, part);
  }
  return model.config.shares ? pages_for_shard(state, device, part) : device.config.pages;
}

}  // namespace

void Reservations::keep(ModelId model,
                        Instant since,
                        const std::vector<ShardPlace>& places,
                        Instant from) {
  if (std::ranges::any_of(
          places, [this](const ShardPlace& place) { return named_.contains(place.device); })) {
    return;
  }
  bool news = false;
  std::string names;
  for (const ShardPlace& place : places) {
    DeviceState& device = state_.devices.at(place.device);
    const policy::Reservation reservation{.model = model,
                                          .since = since,
                                          .pages = pages_wanted(state_, device, place.model),
                                          .from = from};
    news = news || !device.reserved || device.reserved->model != model;
    names += (names.empty() ? "" : "+") + device.config.name;
    named_.insert(place.device);
    kept_.insert(place.device);
    if (device.reserved != reservation) {
      device.reserved = reservation;
      replace(state_, place.device);
    }
  }
  if (news) {
    out_.note(DecisionKind::kWait,
              model,
              std::nullopt,
              "it has waited for " + format_duration(state_.now - since) + "; " + names +
                  (places.size() == 1 ? " is" : " are") +
                  " kept for it, and what came to wait later goes there only where that does not "
                  "delay it");
  }
}

void Reservations::settle() {
  for (const DeviceId id : kept_) {
    const auto device = state_.devices.find(id);
    if (!named_.contains(id) && device != state_.devices.end()) {
      device->second.reserved.reset();
      replace(state_, id);
    }
  }
  kept_ = std::exchange(named_, {});
}

}  // namespace heddle::core::manager
