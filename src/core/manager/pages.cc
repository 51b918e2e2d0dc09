#include "core/manager/pages.h"

#include <algorithm>

#include "core/manager/models.h"

namespace heddle::core::manager {

std::int64_t tokens_alone(const State& state, ModelId model, DeviceId device) {
  const auto found = state.models.find(model);
  if (found == state.models.end() || !found->second.config.footprints.contains(device)) {
    return 0;
  }
  const policy::Footprint& footprint = found->second.config.footprints.at(device);
  const std::int64_t pages = state.devices.at(device).config.pages;
  if (found->second.external()) {
    return engine_pages(found->second, device) <= pages ? found->second.config.context : 0;
  }
  if (policy::pages_to_load(footprint) > pages) {
    return 0;
  }
  return policy::tokens_that_fit(footprint.kv,
                                 pages - footprint.image_pages - footprint.overhead_pages,
                                 found->second.config.context);
}

std::int64_t pages_of(const State& state,
                      const DeviceState& device,
                      ModelId model,
                      std::int64_t workspace) {
  const ModelState& known = state.models.at(model);
  const auto instance = device.instances.find(model);
  const bool here = instance != device.instances.end();
  const std::int64_t kv = here ? instance->second.kv_pages : 0;
  if (known.external()) {
    const bool suspended = here && instance->second.is<Suspended>();
    return suspended ? kv : std::max(kv, engine_pages(known, device.config.id));
  }
  const policy::Footprint& footprint = known.config.footprints.at(device.config.id);
  return footprint.image_pages + std::max<std::int64_t>(footprint.overhead_pages - workspace, 0) +
         std::max(kv, footprint.min_kv_pages);
}

std::int64_t workspace_of(const State& state, const DeviceState& device, ModelId model) {
  const auto found = state.models.find(model);
  if (found == state.models.end()) {
    return 0;
  }
  const auto footprint = found->second.config.footprints.find(device.config.id);
  return footprint == found->second.config.footprints.end() ? 0 : footprint->second.overhead_pages;
}

std::int64_t largest_workspace(const State& state, const DeviceState& device) {
  std::int64_t largest = 0;
  for (const auto& [id, model] : state.models) {
    largest = std::max(largest, workspace_of(state, device, id));
  }
  return largest;
}

std::int64_t free_pages(const State& state, const DeviceState& device, std::int64_t workspace) {
  std::int64_t free = device.config.pages;
  for (const auto& [id, instance] : device.instances) {
    const ModelState& model = state.models.at(id);
    if (!instance.is<Evicting>() && model.grouped() && !instance.staged() && !of_cut(state, id)) {
      return 0;
    }
    if (!instance.is<Evicting>() || model.external()) {
      free -= pages_of(state, device, id, workspace);
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
  for (const auto& [device, footprint] : state.models.at(model).config.footprints) {
    most = std::max(most, tokens_max(state, model, device));
  }
  return most;
}

}  // namespace heddle::core::manager
