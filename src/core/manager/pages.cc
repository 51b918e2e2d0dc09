#include "core/manager/pages.h"

#include <algorithm>

#include "base/check.h"
#include "core/manager/models.h"

namespace heddle::core::manager {

std::int64_t tokens_alone(const State& state, ModelId model, DeviceId device) {
  const auto found = state.models.find(model);
  const policy::Footprint* footprint =
      found == state.models.end() ? nullptr : found->second.footprints.find(device);
  return footprint == nullptr
             ? 0
             : tokens_in(found->second, *footprint, state.devices.at(device).config.pages);
}

std::int64_t tokens_in(const ModelState& model,
                       const policy::Footprint& footprint,
                       std::int64_t pages) {
  if (model.external()) {
    return engine_pages(model, footprint) <= pages ? model.config.context : 0;
  }
  if (policy::pages_to_load(footprint) > pages) {
    return 0;
  }
  return policy::tokens_that_fit(
      footprint.kv, pages - footprint.image_pages - footprint.overhead_pages, model.config.context);
}

std::int64_t pages_of(const State& state,
                      const DeviceState& device,
                      ModelId model,
                      std::int64_t workspace) {
  const auto instance = device.instances.find(model);
  return pages_of(device,
                  state.models.at(model),
                  instance == device.instances.end() ? nullptr : &instance->second,
                  workspace);
}

std::int64_t pages_of(const DeviceState& device,
                      const ModelState& model,
                      const Instance* instance,
                      std::int64_t workspace) {
  const std::int64_t kv = instance == nullptr ? 0 : instance->kv_pages;
  if (model.external()) {
    const bool suspended = instance != nullptr && instance->is<Suspended>();
    return suspended ? kv : std::max(kv, engine_pages(model, device.config.id));
  }
  const policy::Footprint* footprint = model.need_on(device);
  HEDDLE_CHECK(footprint != nullptr);
  return footprint->image_pages + std::max<std::int64_t>(footprint->overhead_pages - workspace, 0) +
         std::max(kv, footprint->min_kv_pages);
}

std::int64_t pages_if_staged(const State& state,
                             const DeviceState& device,
                             ModelId shard,
                             std::int64_t workspace) {
  return pages_of(device, state.models.at(shard), nullptr, workspace);
}

std::int64_t pages_to_come(const State& state, const DeviceState& device, ModelId id) {
  const ModelState& model = state.models.at(id);
  if (!model.external()) {
    return policy::pages_to_load(*model.need_on(device));
  }
  const auto here = device.instances.find(id);
  const bool stands_by = here != device.instances.end() && here->second.is<Suspended>();
  return std::max<std::int64_t>(
      engine_pages(model, device.config.id) - (stands_by ? here->second.kv_pages : 0), 1);
}

std::int64_t workspace_of(const State& state, const DeviceState& device, ModelId model) {
  const auto found = state.models.find(model);
  if (found == state.models.end()) {
    return 0;
  }
  const policy::Footprint* footprint = found->second.need_on(device);
  return footprint == nullptr ? 0 : footprint->overhead_pages;
}

std::int64_t free_pages(const State& state, const DeviceState& device, std::int64_t workspace) {
  std::int64_t free = device.config.pages;
  for (const auto& [id, instance] : device.instances) {
    const ModelState& model = state.models.at(id);
    if (!instance.is<Evicting>() && in_group(state, id, instance) && !model.config.shares) {
      return 0;
    }
    if (!instance.is<Evicting>() || model.external()) {
      free -= pages_of(device, model, &instance, workspace);
    }
  }
  return free;
}

std::int64_t tokens_max(const State& state, ModelId model, DeviceId device) {
  const auto found = state.models.find(model);
  std::int64_t most = tokens_alone(state, model, device);
  if (found != state.models.end() && found->second.config.groups.contains(device)) {
    for (const ShardPlace& place : found->second.config.groups.at(device)) {
      most = std::min(most, tokens_alone(state, place.model, place.device));
    }
  }
  if (found != state.models.end()) {
    for (const DeviceId other : further_devices(found->second, device)) {
      const auto there = state.devices.find(other);
      const bool fits = there != state.devices.end() &&
                        engine_pages(found->second, device) <= there->second.config.pages;
      most = fits ? most : 0;
    }
  }
  return most;
}

std::int64_t tokens_max(const State& state, ModelId model) {
  const auto found = state.models.find(model);
  if (found == state.models.end()) {
    return 0;
  }
  return found->second.external() ? reckon_tokens_max(state, model) : found->second.tokens_max;
}

std::int64_t reckon_tokens_max(const State& state, ModelId model) {
  std::int64_t most = 0;
  for (const Seat& seat : state.models.at(model).footprints.seats()) {
    most = std::max(most, tokens_max(state, model, seat.device));
  }
  return most;
}

}  // namespace heddle::core::manager
