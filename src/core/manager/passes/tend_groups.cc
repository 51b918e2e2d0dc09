#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"

namespace heddle::core::manager {
namespace {

/// What of a group is there but rank 0.
struct Followers {
  bool whole = true;     ///< All are there and none leaves.
  bool complete = true;  ///< Of those that are there, all are complete.
};

/// Where rank 0 goes, or is gone, what follows it goes, too. What has run follows its leader to the
/// end, as that has steps to end yet.
Followers tend_followers(const Parts& core,
                         ModelId id,
                         DeviceId leader_id,
                         const Instance* leader) {
  const State& state = core.state;
  Followers followers;
  for (const ShardPlace& place : state.models.at(id).config.groups.at(leader_id)) {
    const DeviceState& device = state.devices.at(place.device);
    const auto found = device.instances.find(place.model);
    if (found == device.instances.end() || found->second.staged() ||
        !of_group(found->second, place.device, leader_id)) {
      followers.whole = false;
      continue;
    }
    const Instance& shard = found->second;
    const Evicting* leaves = leader == nullptr ? nullptr : leader->as<Evicting>();
    if (leaves != nullptr && !shard.is<Evicting>()) {
      core.residency.leader_goes(place.device, place.model, leaves->why);
    }
    const bool free = leader == nullptr || (leaves != nullptr && shard.is<Loading>());
    if (free && !shard.is<Evicting>()) {
      const EvictionReason why = leaves != nullptr    ? leaves->why
                                 : shard.is<Member>() ? shard.as<Member>()->leader_went_for
                                                      : EvictionReason::kDisplaced;
      core.residency.evict_here(place.device, place.model, EvictMode::kNow, why);
    }
    followers.whole = followers.whole && !shard.is<Evicting>();
    followers.complete = followers.complete && shard.complete;
  }
  return followers;
}

void tend_group(const Parts& core, ModelId id, DeviceId leader_id) {
  const State& state = core.state;
  const auto& instances = state.devices.at(leader_id).instances;
  const auto found = instances.find(id);
  const Instance* leader = found == instances.end() ? nullptr : &found->second;
  if (leader != nullptr && leader->staged()) {
    return;
  }
  const Followers followers = tend_followers(core, id, leader_id, leader);
  if (leader == nullptr || leader->is<Evicting>()) {
    return;
  }
  if (!followers.whole) {
    core.residency.evict_here(leader_id, id, EvictMode::kNow, EvictionReason::kFailed);
    tend_followers(core, id, leader_id, leader);
    return;
  }
  if (!leader->complete || !followers.complete || leader->part().forming) {
    return;
  }
  switch (beside(state, id, leader_id)) {
    case Beside::kStaying:  // An eviction was refused; requests that wait for it ask again.
      core.residency.stand_by(id, leader_id);
      break;
    case Beside::kNobody:
      core.residency.form(id, leader_id);
      break;
    case Beside::kLeaving:
      break;
  }
}

}  // namespace

void tend_groups(const Parts& core) {
  each(core.state.index.stirred, [&](const std::pair<ModelId, DeviceId>& group) {
    const auto [id, leader] = group;
    core.claims.look_after(id, leader);
    const auto model = core.state.models.find(id);
    if (model != core.state.models.end() && model->second.config.groups.contains(leader)) {
      tend_group(core, id, leader);
    }
  });
}

}  // namespace heddle::core::manager
