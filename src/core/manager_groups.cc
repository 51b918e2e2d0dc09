#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "core/manager_core_impl.h"

/// Models that are cut over several devices (tensor parallelism). Their shards are models that are
/// loaded and evicted together, on a block of devices that they have to themselves (but for those
/// that wait apart: manager_shards.cc). The group serves once each is complete to the last byte: a
/// step that waited for weights on one device would hold up all of them.
namespace heddle::core {

/// The model that this is a shard of; itself if it is none, or rank 0.
ModelId ManagerCore::Impl::whole(ModelId model) const {
  return models_.at(model).config.part_of.value_or(model);
}

/// Where the shards are when this device leads, by rank.
std::vector<ShardPlace> ManagerCore::Impl::block(ModelId model, DeviceId leader) const {
  std::vector<ShardPlace> places{{.model = model, .device = leader}};
  const std::vector<ShardPlace>& others = models_.at(model).config.groups.at(leader);
  places.insert(places.end(), others.begin(), others.end());
  return places;
}

/// The instance that speaks for this one: of a further shard, that of rank 0, or null when that is
/// gone.
const Instance* ManagerCore::Impl::leading(const DeviceState& device, ModelId model) const {
  const Instance& instance = device.instances.at(model);
  if (!instance.leader || instance.apart) {
    return &instance;
  }
  const auto& there = devices_.at(*instance.leader).instances;
  const auto found = there.find(whole(model));
  return found == there.end() ? nullptr : &found->second;
}

Instance* ManagerCore::Impl::leading(const DeviceState& device, ModelId model) {
  Instance& instance = devices_.at(device.config.id).instances.at(model);
  if (!instance.leader || instance.apart) {
    return &instance;
  }
  auto& there = devices_.at(*instance.leader).instances;
  const auto found = there.find(whole(model));
  return found == there.end() ? nullptr : &found->second;
}

/// A group is there: the device is no place for anything else until it has left.
bool ManagerCore::Impl::dedicated(const DeviceState& device) const {
  return std::any_of(device.instances.begin(), device.instances.end(), [this](const auto& entry) {
    return models_.at(entry.first).grouped() && !entry.second.apart;
  });
}

/// A group is there that cannot be sent away at once.
bool ManagerCore::Impl::held(const DeviceState& device) const {
  return std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
    if (!models_.at(entry.first).grouped() || entry.second.apart) {
      return false;
    }
    const Instance* leader = leading(device, entry.first);
    return leader == nullptr || leader->stage != InstanceStage::kServing ||
           busy(whole(entry.first), *leader);
  });
}

/// Whether it never makes way for another model.
bool ManagerCore::Impl::stays(const ModelState& model) const {
  return (model.config.pin && !model.removed) || !options_.planner.evict;
}

/// Whether a plan or a claim wants the model gone from here; of a group, from any of its devices.
bool ManagerCore::Impl::is_to_leave(const DeviceState& device, ModelId model) const {
  std::vector<ShardPlace> places{{.model = model, .device = device.config.id}};
  if (models_.at(model).cut()) {
    places = block(model, device.config.id);
  }
  return std::any_of(places.begin(), places.end(), [this](const ShardPlace& place) {
    const DeviceState& there = devices_.at(place.device);
    return there.claimed ||
           (there.plan &&
            std::count(there.plan->victims.begin(), there.plan->victims.end(), place.model) > 0);
  });
}

/// Whether anything of the model is on any device; of rank 0, also the other shards.
bool ManagerCore::Impl::somewhere(ModelId id, const ModelState& model) const {
  const auto on_a_device = [this](ModelId each) {
    return std::any_of(devices_.begin(), devices_.end(), [&](const auto& device) {
      return device.second.instances.contains(each);
    });
  };
  if (on_a_device(id)) {
    return true;
  }
  return model.cut() && std::any_of(model.config.groups.begin()->second.begin(),
                                    model.config.groups.begin()->second.end(),
                                    [&](const auto& place) { return on_a_device(place.model); });
}

// ---- Groups that are there ----

void ManagerCore::Impl::tend_groups() {
  for (const auto& [id, model] : models_) {
    for (const auto& [leader, others] : model.config.groups) {
      tend_group(id, leader);
    }
  }
}

/// One for all, all for one: without a shard the others go, rank 0 before those that follow it.
void ManagerCore::Impl::tend_group(ModelId id, DeviceId leader_id) {
  DeviceState& first = devices_.at(leader_id);
  const auto found = first.instances.find(id);
  Instance* leader = found == first.instances.end() ? nullptr : &found->second;
  if (leader != nullptr && leader->apart) {
    return;
  }
  bool whole = true;
  bool complete = leader != nullptr && leader->complete;
  for (const ShardPlace& place : models_.at(id).config.groups.at(leader_id)) {
    DeviceState& device = devices_.at(place.device);
    const auto shard = device.instances.find(place.model);
    if (shard == device.instances.end() || shard->second.apart) {
      whole = false;
      continue;
    }
    Instance& instance = shard->second;
    const bool leader_goes = leader != nullptr && leader->stage == InstanceStage::kEvicting;
    if (leader_goes && instance.stage != InstanceStage::kEvicting) {
      instance.evicted_for = leader->evicted_for;
    }
    // What has run follows its leader to the end, as that has steps to end yet.
    const bool free =
        leader == nullptr || (leader_goes && instance.stage == InstanceStage::kLoading);
    if (free && instance.stage != InstanceStage::kEvicting) {
      evict_here(device, place.model, EvictMode::kNow, instance.evicted_for);
    }
    whole = whole && instance.stage != InstanceStage::kEvicting;
    complete = complete && instance.complete;
  }
  if (leader == nullptr || leader->stage == InstanceStage::kEvicting) {
    return;
  }
  if (!whole) {
    evict_here(first, id, EvictMode::kNow, EvictionReason::kFailed);
    tend_group(id, leader_id);
  } else if (complete && !leader->forming && beside(id, leader_id) == Beside::kStaying) {
    stand_by(id, leader_id);  // An eviction was refused; who waits for it asks again.
  } else if (complete && !leader->forming && beside(id, leader_id) == Beside::kNobody) {
    leader->forming = true;
    FormGroup form;
    for (const ShardPlace& place : block(id, leader_id)) {
      form.members.push_back(
          {.device = place.device, .epoch = devices_.at(place.device).epoch, .model = place.model});
    }
    act(std::move(form));
  }
}

void ManagerCore::Impl::on(const GroupFormed& formed) {
  DeviceState& first = devices_.at(formed.device);
  const auto leader = first.instances.find(formed.model);
  if (first.epoch != formed.epoch || leader == first.instances.end() ||
      leader->second.stage != InstanceStage::kLoading || !leader->second.forming) {
    return;  // It has been sent away meanwhile.
  }
  for (const ShardPlace& place : block(formed.model, formed.device)) {
    DeviceState& device = devices_.at(place.device);
    device.refusals = 0;
    Instance& instance = device.instances.at(place.model);
    instance.stage = instance.leader ? InstanceStage::kMember : InstanceStage::kServing;
    instance.serving_since = now_;
    instance.used = instance.used || instance.leader;
  }
  ModelState& model = models_.at(formed.model);
  model.failures = 0;
  model.failure.reset();
}

/// Sends the groups away that are in a plan's way. True when nothing of them is left here that
/// would not be gone before what is loaded next.
bool ManagerCore::Impl::dissolve_victims(DeviceState& device, const DrainPlan& plan) {
  bool left = true;
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    if (found == device.instances.end() || !models_.at(victim).grouped() || found->second.apart ||
        found->second.stage == InstanceStage::kEvicting) {
      continue;
    }
    left = false;
    Instance& leader = *leading(device, victim);
    if (leader.stage == InstanceStage::kServing) {
      leader.stage = InstanceStage::kDraining;  // It could not be evicted as was asked.
    }
    if (leader.stage == InstanceStage::kDraining && leader.in_flight.empty()) {
      evict(device, victim, EvictMode::kWhenIdle, EvictionReason::kDisplaced, plan.model);
    }
  }
  return left;
}

/// What a claim promises to its group, and a group to its requests.
void ManagerCore::Impl::check_groups() const {
  for (const auto& [id, device] : devices_) {
    HEDDLE_CHECK(!device.claimed || models_.at(*device.claimed).claims);
    for (const auto& [model, instance] : device.instances) {
      if (!models_.at(model).grouped() || instance.stage == InstanceStage::kEvicting) {
        continue;
      }
      HEDDLE_CHECK(!instance.apart || (instance.in_flight.empty() && !instance.forming));
      if (instance.apart) {
        continue;
      }
      const Instance* leader = leading(device, model);
      HEDDLE_CHECK(leader != nullptr);
      HEDDLE_CHECK(leader == &instance || leader->stage != InstanceStage::kLoading ||
                   instance.stage == InstanceStage::kLoading);
      const bool runs =
          instance.stage == InstanceStage::kServing || instance.stage == InstanceStage::kDraining;
      // While it is loaded, the eviction of another may have been refused, and its load then is.
      for (const auto& [other, beside] : device.instances) {
        const bool leaves = beside.stage == InstanceStage::kEvicting;
        const bool absent = beside.stage == InstanceStage::kSuspended && beside.kv_pages == 0;
        HEDDLE_CHECK(other == model || leaves || absent ||
                     (!runs && instance.stage != InstanceStage::kMember));
      }
      for (const ShardPlace& place : runs ? block(model, id) : std::vector<ShardPlace>{}) {
        const auto& there = devices_.at(place.device).instances;
        HEDDLE_CHECK(place.model == model || there.at(place.model).stage == InstanceStage::kMember);
      }
    }
  }
}

}  // namespace heddle::core
