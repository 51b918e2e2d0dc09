#include "core/manager/catalog.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"

namespace heddle::core::manager {
namespace {

/// Of windows of load that are remembered.
constexpr std::int64_t kDays = 8;
/// Of the planner, over which a model's load is averaged.
constexpr std::int64_t kPeriodsSeen = 10;

/// Without what Footprints have instead.
ManagerModel configured_as(ManagerModel model) {
  model.footprints.clear();
  model.on_kinds.clear();
  return model;
}

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
  std::set<DeviceId> there;
  for (const ManagerDevice& device : configure.devices) {
    there.insert(device.id);
  }
  state_.devices.erase_if([&](const auto& entry) {
    const DeviceState& device = entry.second;
    return !there.contains(entry.first) && !device.up && device.instances.empty() &&
           device.guests.empty() && !leads(entry.first);
  });
  FootprintMaker maker(configure.devices);
  std::set<ModelId> configured;
  for (const ManagerModel& model : configure.models) {
    configured.insert(model.id);
    ModelState fresh{.demand = new_meter(state_.now, state_.options.planner)};
    ModelState& known = state_.models.try_emplace(model.id, std::move(fresh)).first->second;
    HEDDLE_CHECK(!known.removed);  // A model that comes back has a new id.
    const ManagerModel before = std::exchange(known.config, configured_as(model));
    const Footprints needed = std::exchange(known.footprints, maker.make(model));
    keep_blocks(known, before, needed);
    std::erase_if(known.fetched_at, [&](HostId host) { return !model.fetched.contains(host); });
  }
  count_cuts();
  for (auto& [id, model] : state_.models) {
    model.removed = !configured.contains(id);
    if (model.removed) {
      forget_devices(model);
    }
  }
  reckon_tokens();
  reckon_workspaces();
  reindex(state_);
}

/// What the longest request of each model can have. Devices that have the same pages and on which a
/// model needs the same are looked at once.
void Catalog::reckon_tokens() {
  std::map<const Seats*, std::vector<std::int64_t>> pages;  // Most of a device, by shape.
  for (auto& [id, model] : state_.models) {
    if (!model.config.groups.empty()) {
      model.tokens_max = reckon_tokens_max(state_, id);
      continue;
    }
    const auto& shapes = model.footprints.shapes();
    std::vector<std::int64_t>& most = pages[model.footprints.list().get()];
    if (most.empty()) {
      for (const Seat& seat : model.footprints.seats()) {
        most.resize(std::max<std::size_t>(most.size(), seat.shape + 1), -1);
        most[seat.shape] = std::max(most[seat.shape], state_.devices.at(seat.device).config.pages);
      }
    }
    model.tokens_max = 0;
    for (std::size_t shape = 0; shape < most.size(); ++shape) {
      if (most[shape] >= 0) {
        model.tokens_max = std::max(model.tokens_max, tokens_in(model, shapes[shape], most[shape]));
      }
    }
  }
}

/// The largest workspace that any model has on each device.
void Catalog::reckon_workspaces() {
  std::map<const Seats*, std::vector<std::int64_t>> largest;  // By shape.
  for (const auto& [id, model] : state_.models) {
    std::vector<std::int64_t>& pages = largest[model.footprints.list().get()];
    const auto& shapes = model.footprints.shapes();
    pages.resize(std::max(pages.size(), shapes.size()), 0);
    for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
      pages[shape] = std::max(pages[shape], shapes[shape].overhead_pages);
    }
  }
  std::size_t place = 0;
  for (auto& [id, device] : state_.devices) {
    device.workspace = 0;
    device.place = place++;
  }
  for (const auto& [seats, pages] : largest) {
    for (const Seat& seat : seats == nullptr ? std::span<const Seat>() : std::span(*seats)) {
      std::int64_t& workspace = state_.devices.at(seat.device).workspace;
      workspace = std::max(workspace, pages[seat.shape]);
    }
  }
}

/// Whether some shard's group is led from there.
bool Catalog::leads(DeviceId device) const {
  return std::ranges::any_of(state_.devices, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.instances, [&](const auto& instance) {
      return instance.second.part().leader == device;
    });
  });
}

/// Whether a group is there, on its way, or about to be.
bool Catalog::in_use(const ModelState& model,
                     DeviceId leader,
                     const std::vector<ShardPlace>& others) const {
  const auto part = [&](DeviceId device, ModelId shard) {
    const auto& instances = state_.devices.at(device).instances;
    const auto found = instances.find(shard);
    return found != instances.end() && !found->second.staged() &&
           of_group(found->second, device, leader);
  };
  return (model.claim && model.claim->leader == leader) || part(leader, model.config.id) ||
         std::ranges::any_of(
             others, [&](const ShardPlace& place) { return part(place.device, place.model); });
}

/// Hosts that come and go change the blocks of models whose stages are on several. A group keeps
/// the devices that it has.
void Catalog::keep_blocks(ModelState& model,
                          const ManagerModel& before,
                          const Footprints& needed) const {
  for (const auto& [leader, others] : before.groups) {
    const bool known = state_.devices.contains(leader) &&
                       std::ranges::all_of(others, [this](const ShardPlace& place) {
                         return state_.devices.contains(place.device);
                       });
    if (known && in_use(model, leader, others)) {
      model.config.groups[leader] = others;
    }
  }
  for (const Seat& seat : needed.seats()) {
    const bool kept = model.config.part_of ? state_.devices.contains(seat.device)
                                           : model.config.groups.contains(seat.device);
    if (kept && !model.footprints.contains(seat.device)) {
      model.footprints.put(seat.device, needed.shapes()[seat.shape]);
    }
  }
}

void Catalog::know(const GroupFormed& formed) {
  const auto model = state_.models.find(formed.model);
  if (model == state_.models.end() || !model->second.sharded()) {
    return;
  }
  const std::vector<ModelId> shape = shards_of(model->second);
  std::vector<ShardPlace> others;
  for (std::size_t i = 0; i < formed.members.size(); ++i) {
    const GroupMember& member = formed.members[i];
    const bool right = i == 0 ? member.model == formed.model && member.device == formed.device
                              : i <= shape.size() && member.model == shape[i - 1];
    const auto known = state_.models.find(member.model);
    if (!right || !state_.devices.contains(member.device) || known == state_.models.end() ||
        !known->second.footprints.contains(member.device)) {
      return;
    }
    if (i > 0) {
      others.push_back({.model = member.model, .device = member.device});
    }
  }
  if (others.size() == shape.size()) {
    model->second.config.groups[formed.device] = others;
    reindex(state_, formed.model);
  }
}

void Catalog::choose_block(ModelId cut, DeviceId leader, std::vector<ShardPlace> followers) {
  auto& groups = state_.models.at(cut).config.groups;
  groups.clear();
  groups[leader] = std::move(followers);
  reindex(state_, cut);
}

/// A model that is going can be nowhere else than where there are devices.
void Catalog::forget_devices(ModelState& model) const {
  const auto gone = [this](DeviceId device) { return !state_.devices.contains(device); };
  model.footprints.erase_if(gone);
  const auto lost = [&](const auto& entry) {
    return gone(entry.first) || std::ranges::any_of(entry.second, [&](const ShardPlace& place) {
             return gone(place.device);
           });
  };
  std::erase_if(model.config.groups, lost);
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
    ModelState& model = found->second;
    HostImage& known = model.images[image.host];
    if (known.cached && image.bytes == 0 && !model.removed) {
      state_.full_hosts.insert(image.host);
    }
    known = {.bytes = image.bytes, .cached = image.host_cached};
    const bool there = image.host_cached || image.bytes >= model.config.image_bytes;
    if (there && model.config.fetched.contains(image.host)) {
      model.fetched_at.insert(image.host);
    }
  }
}

void Catalog::forget_removed() {
  std::set<ModelId> forgotten;
  for (const ModelId id : state_.index.going) {
    const ModelState& model = state_.models.at(id);
    const bool cut_knows = std::ranges::any_of(
        model.cuts, [this](ModelId cut) { return state_.models.contains(cut); });
    if (model.removed && model.requests == 0 && !model.claim && model.unloads_asked.empty() &&
        !model.config.part_of && !cut_knows && !somewhere(state_, id)) {
      forgotten.insert(id);
    }
  }
  if (forgotten.empty()) {
    return;
  }
  state_.models.erase_if([&](const auto& entry) {  // Shards are known as long as their rank 0.
    return forgotten.contains(entry.second.config.part_of.value_or(entry.first));
  });
  count_cuts();
  reckon_workspaces();
  reindex(state_);
}

}  // namespace heddle::core::manager
