#include <algorithm>
#include <set>

#include "core/manager_core_impl.h"

/// Devices, and blocks of them, as policies see them.
namespace heddle::core {

/// What the model holds of the device, or will when it is loaded; of its workspace, which the
/// models of a device share, what it has beyond one of `workspace` pages, that of whom this is
/// asked for. Together with that these are never less than the largest of all, whoever stays.
std::int64_t ManagerCore::Impl::pages_of(const DeviceState& device,
                                         ModelId model,
                                         std::int64_t workspace) const {
  if (models_.at(model).foreign()) {
    const auto instance = device.instances.find(model);
    const bool here = instance != device.instances.end();
    const std::int64_t held = here ? instance->second.kv_pages : 0;
    const bool suspended = here && instance->second.stage == InstanceStage::kSuspended;
    return suspended ? held : std::max(held, engine_pages(models_.at(model)));
  }
  const policy::Footprint& footprint = models_.at(model).config.footprints.at(device.config.id);
  const auto instance = device.instances.find(model);
  const std::int64_t kv = instance == device.instances.end() ? 0 : instance->second.kv_pages;
  return footprint.image_pages + std::max<std::int64_t>(footprint.overhead_pages - workspace, 0) +
         std::max(kv, footprint.min_kv_pages);
}

/// The workspace that the model has on the device; 0 of an engine that is not ours, or of nobody.
std::int64_t ManagerCore::Impl::workspace_of(const DeviceState& device, ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.config.footprints.contains(device.config.id)) {
    return 0;
  }
  return found->second.config.footprints.at(device.config.id).overhead_pages;
}

/// The largest that any model has there: with it, what models hold of the device adds up.
std::int64_t ManagerCore::Impl::largest_workspace(const DeviceState& device) const {
  std::int64_t largest = 0;
  for (const auto& [id, model] : models_) {
    largest = std::max(largest, workspace_of(device, id));
  }
  return largest;
}

/// What a load may take that brings a workspace of so many pages. Evictions under way count as
/// done, as the worker keeps the order; not so those of engines that are not ours, which take long
/// and may not free what they should. A group leaves nothing, but shards that wait apart do.
std::int64_t ManagerCore::Impl::free_pages(const DeviceState& device,
                                           std::int64_t workspace) const {
  std::int64_t free = device.config.pages;
  for (const auto& [id, instance] : device.instances) {
    if (instance.stage != InstanceStage::kEvicting && models_.at(id).grouped() && !instance.apart) {
      return 0;
    }
    if (instance.stage != InstanceStage::kEvicting || models_.at(id).foreign()) {
      free -= pages_of(device, id, workspace);
    }
  }
  return free;
}

policy::PlacementDevice ManagerCore::Impl::view(const DeviceState& device, ModelId wanted) const {
  const auto here = device.instances.find(wanted);
  const bool stands_by =
      here != device.instances.end() && here->second.stage == InstanceStage::kSuspended;
  const bool present =
      here != device.instances.end() && !stands_by && apart(device, wanted) == nullptr;
  const ModelState& state = models_.at(wanted);
  const std::int64_t workspace = workspace_of(device, wanted);
  const std::int64_t need =
      state.foreign()
          ? std::max<std::int64_t>(engine_pages(state) - (stands_by ? here->second.kv_pages : 0), 1)
          : policy::pages_to_load(state.config.footprints.at(device.config.id));
  policy::PlacementDevice view{
      .id = device.config.id,
      .need_pages = need,
      .pages = device.config.pages,
      .free_pages = free_pages(device, workspace),
      .available = device.up && !device.plan && !device.alone && !present &&
                   now_ >= device.paused_until &&
                   device.claimed.value_or(whole(wanted)) == whole(wanted),
      .short_of_pages = options_.planner.pressure && device.short_sequences > 0,
      .pressure = pressure(device, wanted)};
  for (const auto& [id, here_too] : device.instances) {
    if (here_too.stage == InstanceStage::kEvicting || id == wanted) {
      continue;
    }
    // Of a shard, what is asked is how its group stands.
    const ModelState& model = models_.at(whole(id));
    const Instance& instance = *leading(device, id);
    if (model.foreign()) {
      if (instance.stage != InstanceStage::kSuspended || instance.kv_pages > 0) {
        view.residents.push_back(engine_view(device, id, state));
      }
      continue;
    }
    const bool grouped = model.grouped() && !here_too.apart;
    view.residents.push_back(
        {.model = id,
         .pages = grouped ? device.config.pages : pages_of(device, id, workspace),
         .queue = std::ssize(instance.in_flight) + std::ssize(model.waiting),
         .last_used = model.last_used,
         .serving_since = instance.serving_since,
         .min_residence = model.config.min_residence,
         .pinned = stays(model),
         .displaced =
             displaces(state, id) || grouped || (!options_.planner.share && busy(id, instance)),
         .worth = resident_worth(device, id),
         .in_transition =
             instance.stage != (here_too.apart ? InstanceStage::kMember : InstanceStage::kServing),
         .runs_alone = here_too.apart});
  }
  return view;
}

/// A block of devices as if it were one: whatever is there has to go, but the model's own shards.
policy::PlacementDevice ManagerCore::Impl::block_view(ModelId model, DeviceId leader) const {
  policy::PlacementDevice all{.id = leader, .available = true, .missing = missing(model, leader)};
  std::set<ModelId> groups;
  for (const ShardPlace& place : block(model, leader)) {
    const DeviceState& device = devices_.at(place.device);
    policy::PlacementDevice part = view(device, place.model);
    all.need_pages += part.pages;
    all.pages += part.pages;
    all.free_pages += part.free_pages;
    if (apart(device, place.model) != nullptr) {
      all.free_pages += pages_of(device, place.model, workspace_of(device, place.model));
    }
    all.available = all.available && part.available;
    for (policy::ResidentView& resident : part.residents) {
      resident.displaced = true;
      if (apart(device, resident.model) != nullptr) {
        resident.in_transition = false;  // Nobody waits for what is on its way.
      }
      if (models_.at(resident.model).grouped() && !groups.insert(whole(resident.model)).second) {
        resident.worth = 0;  // Its shards are lost together.
      }
      all.residents.push_back(resident);
    }
  }
  return all;
}

}  // namespace heddle::core
