#include <algorithm>

#include "core/manager_core_impl.h"

/// Shards of models that are cut over several devices, while nobody asks for their group. They are
/// prewarmed like any model, share their devices with others and are evicted one by one; a group
/// that has lost a shard is worth nothing until that is there again. Asked for, the group claims
/// its block, loads what is missing and runs (manager_claims.cc).
namespace heddle::core {

/// The shard, if it is here, stays and waits for its group; else null.
const Instance* ManagerCore::Impl::apart(const DeviceState& device, ModelId model) {
  const auto found = device.instances.find(model);
  const bool waits = found != device.instances.end() && found->second.apart &&
                     found->second.stage != InstanceStage::kEvicting;
  return waits ? &found->second : nullptr;
}

ManagerCore::Impl::Gathered ManagerCore::Impl::gathered(ModelId model, DeviceId leader) const {
  Gathered all;
  for (const ShardPlace& place : block(model, leader)) {
    const DeviceState& device = devices_.at(place.device);
    const auto found = device.instances.find(place.model);
    const bool there =
        found != device.instances.end() && found->second.stage != InstanceStage::kEvicting;
    ++all.shards;
    all.there += there ? 1 : 0;
    all.complete += there && found->second.complete ? 1 : 0;
  }
  return all;
}

/// A shard whose group has lost another: its pages are as good as free.
bool ManagerCore::Impl::left_over(const DeviceState& device, ModelId model) const {
  const Instance* shard = apart(device, model);
  return shard != nullptr && shard->stage == InstanceStage::kMember &&
         !gathered(whole(model), shard->leader.value_or(device.config.id)).whole();
}

ManagerCore::Impl::Beside ManagerCore::Impl::beside(ModelId model, DeviceId leader) const {
  Beside most = Beside::kNobody;
  for (const ShardPlace& place : block(model, leader)) {
    for (const auto& [id, instance] : devices_.at(place.device).instances) {
      if (id == place.model || instance.stage == InstanceStage::kSuspended) {
        continue;
      }
      most = std::max(
          most, instance.stage == InstanceStage::kEvicting ? Beside::kLeaving : Beside::kStaying);
    }
  }
  return most;
}

/// The group is not formed yet: its shards wait as if it had not been asked for.
void ManagerCore::Impl::stand_by(ModelId model, DeviceId leader) {
  for (const ShardPlace& place : block(model, leader)) {
    Instance& shard = devices_.at(place.device).instances.at(place.model);
    shard.apart = true;
    shard.stage = InstanceStage::kMember;
  }
}

/// What losing this instance is expected to cost [s]: of a shard, what its group is worth.
double ManagerCore::Impl::resident_worth(const DeviceState& device, ModelId model) const {
  const Instance& instance = device.instances.at(model);
  const DeviceId leader = instance.leader.value_or(device.config.id);
  if (instance.apart && !gathered(whole(model), leader).whole()) {
    return 0;
  }
  return worth(devices_.at(leader), whole(model));
}

/// Until all shards are there, were those loaded now that are not; they are loaded at once.
Duration ManagerCore::Impl::missing(ModelId model, DeviceId leader) const {
  const Duration load_takes = load_time(models_.at(model), devices_.at(leader));
  Duration longest{};
  for (const ShardPlace& place : block(model, leader)) {
    const Instance* shard = apart(devices_.at(place.device), place.model);
    Duration left = load_takes;
    if (shard != nullptr) {
      left = shard->complete ? Duration{}
                             : std::max(load_takes - (now_ - shard->load_began), Duration{});
    }
    longest = std::max(longest, left);
  }
  return longest;
}

/// What a group takes to load is learnt where all its shards were begun together.
void ManagerCore::Impl::note_shard_complete(DeviceState& device, ModelId shard) {
  const Instance& here = device.instances.at(shard);
  const DeviceId leader = here.leader.value_or(device.config.id);
  const ModelId model = whole(shard);
  const std::vector<ShardPlace> places = block(model, leader);
  const bool together = std::all_of(places.begin(), places.end(), [&, this](const auto& place) {
    const auto& there = devices_.at(place.device).instances;
    const auto found = there.find(place.model);
    return found != there.end() && found->second.complete &&
           found->second.load_began == here.load_began && found->second.from_host == here.from_host;
  });
  if (together) {
    DeviceState& first = devices_.at(leader);
    note_complete(first, model, first.instances.at(model));
  }
}

/// How the first request finds the group that is led from this device.
StartKind ManagerCore::Impl::start_kind(ModelId model, const DeviceState& device) const {
  if (!models_.at(model).config.groups.contains(device.config.id)) {
    return StartKind::kMiss;
  }
  const auto found = device.instances.find(model);
  if (found != device.instances.end() && !found->second.apart) {
    const Instance& leader = found->second;
    const bool expected = leader.why == LoadReason::kForecast && !leader.used;
    return leader.stage == InstanceStage::kServing   ? expected ? StartKind::kHit : StartKind::kWarm
           : leader.stage == InstanceStage::kLoading ? StartKind::kAttach
                                                     : StartKind::kMiss;
  }
  const std::vector<ShardPlace> places = block(model, device.config.id);
  const bool any = std::any_of(places.begin(), places.end(), [this](const ShardPlace& place) {
    return apart(devices_.at(place.device), place.model) != nullptr;
  });
  const Gathered there = gathered(model, device.config.id);
  return there.complete == there.shards ? StartKind::kHit
         : any                          ? StartKind::kAttach
                                        : StartKind::kMiss;
}

}  // namespace heddle::core
