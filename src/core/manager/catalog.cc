#include "core/manager/catalog.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "core/manager/groups.h"
#include "core/manager/pages.h"

namespace heddle::core::manager {
namespace {

/// Of windows of load that are remembered.
constexpr std::int64_t kDays = 8;
/// Of the planner, over which a model's load is averaged.
constexpr std::int64_t kPeriodsSeen = 10;

policy::DemandMeter new_meter(Instant now, const PlannerOptions& planner) {
  const policy::ForecastOptions options =
      planner.forecast ? policy::ForecastOptions{}
                       : policy::ForecastOptions{.days = 0, .only = policy::Expert::kLastWindow};
  return {now, planner.calendar, kDays, kPeriodsSeen * planner.period, options};
}

}  // namespace

void Catalog::configure(const Configure& configure) {
  state_.options = configure.options;
  state_.began = state_.devices.empty() ? state_.now : state_.began;
  for (const ManagerDevice& device : configure.devices) {
    state_.devices[device.id].config = device;
  }
  std::erase_if(state_.devices, [&](const auto& entry) {
    const DeviceState& device = entry.second;
    return !device.up && device.instances.empty() && device.guests.empty() &&
           std::ranges::find(configure.devices, entry.first, &ManagerDevice::id) ==
               configure.devices.end();
  });
  std::set<ModelId> configured;
  for (const ManagerModel& model : configure.models) {
    configured.insert(model.id);
    ModelState fresh{.demand = new_meter(state_.now, state_.options.planner)};
    ModelState& known = state_.models.try_emplace(model.id, std::move(fresh)).first->second;
    HEDDLE_CHECK(!known.removed);  // A model that comes back has a new id.
    known.config = model;
    std::erase_if(known.fetched_at, [&](HostId host) { return !model.fetched.contains(host); });
  }
  count_cuts();
  for (auto& [id, model] : state_.models) {
    model.removed = !configured.contains(id);
    if (model.removed) {
      forget_devices(model);
    }
    model.tokens_max = reckon_tokens_max(state_, id);
  }
}

/// A model that is going can be nowhere else than where there are devices.
void Catalog::forget_devices(ModelState& model) const {
  const auto gone = [this](DeviceId device) { return !state_.devices.contains(device); };
  std::erase_if(model.config.footprints, [&](const auto& entry) { return gone(entry.first); });
  const auto lost = [&](const auto& entry) {
    return gone(entry.first) || std::ranges::any_of(entry.second, [&](const ShardPlace& place) {
             return gone(place.device);
           });
  };
  std::erase_if(model.config.groups, lost);
  std::erase_if(model.chosen, lost);
}

void Catalog::count_cuts() {
  for (auto& [id, model] : state_.models) {
    model.cuts.clear();
  }
  for (const auto& [id, model] : state_.models) {
    if (model.config.cut_of) {
      state_.models.at(*model.config.cut_of).cuts.push_back(id);
    }
  }
  for (auto& [id, model] : state_.models) {
    std::ranges::sort(
        model.cuts, {}, [this](ModelId cut) { return state_.models.at(cut).config.stages.size(); });
  }
}

void Catalog::image(const ImageState& image) {
  const auto found = state_.models.find(image.model);
  if (found != state_.models.end()) {
    found->second.images[image.host] = {.bytes = image.bytes, .cached = image.host_cached};
    if (image.host_cached && found->second.config.fetched.contains(image.host)) {
      found->second.fetched_at.insert(image.host);
    }
  }
}

void Catalog::forget_removed() {
  std::set<ModelId> forgotten;
  for (const auto& [id, model] : state_.models) {
    const bool cut_knows = std::ranges::any_of(
        model.cuts, [this](ModelId cut) { return state_.models.contains(cut); });
    if (model.removed && model.requests == 0 && !model.claims && model.unloads_asked.empty() &&
        !model.config.part_of && !cut_knows && !somewhere(state_, id)) {
      forgotten.insert(id);
    }
  }
  std::erase_if(state_.models,
                [&](const auto& entry) {  // Shards are known as long as their rank 0.
                  return forgotten.contains(entry.second.config.part_of.value_or(entry.first));
                });
  if (!forgotten.empty()) {
    count_cuts();
  }
}

}  // namespace heddle::core::manager
