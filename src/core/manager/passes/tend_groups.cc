#include <algorithm>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/value.h"

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

/// Whether requests of the group wait for memory on its devices.
bool wants_share(const State& state, ModelId id, DeviceId leader) {
  const Shortage& shortage = state.devices.at(leader).shortage;
  return state.models.at(id).config.shares && shortage.sequences > 0 && shortage.model == id;
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
  if (leader->runs() && wants_share(state, id, leader_id)) {
    // There may be memory by what has happened.
    core.out.act(fit_share(state, id, leader_id, false));
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

namespace {

/// A group without requests keeps its share for so long, with the prefixes that are cached there.
constexpr Duration kShareIdle = std::chrono::seconds(10);

/// The most pages that any of its devices has for its KV.
std::int64_t share_of(const State& state, ModelId id, DeviceId leader) {
  std::int64_t pages = 0;
  for (const ShardPlace& place : block(state, id, leader)) {
    const auto& there = state.devices.at(place.device).instances;
    const auto found = there.find(place.model);
    pages = std::max(pages, found == there.end() ? 0 : found->second.kv_pages);
  }
  return pages;
}

}  // namespace

void fit_shares(const Parts& core) {
  const State& state = core.state;
  for (const ModelId id : state.index.led) {
    const ModelState& model = state.models.at(id);
    for (const Spot& spot : model.spots) {
      if (!model.config.shares || !spot.instance->is<Serving>() ||
          busy(state, id, *spot.instance)) {
        continue;
      }
      const Instant idle_at = std::max(model.last_used, spot.instance->serving_since) + kShareIdle;
      const bool large = share_of(state, id, spot.id) > model.need_on(*spot.device)->min_kv_pages;
      if (large && state.now >= idle_at) {
        core.out.act(fit_share(state, id, spot.id, true));
      } else if (large) {
        core.out.wake_by(idle_at);
      }
    }
  }
}

}  // namespace heddle::core::manager
