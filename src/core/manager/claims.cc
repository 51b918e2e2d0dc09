#include "core/manager/claims.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/value.h"
#include "core/manager/views.h"

namespace heddle::core::manager {

bool claimable(const State& state, ModelId model, DeviceId leader) {
  const std::vector<ShardPlace> places = block(state, model, leader);
  return std::all_of(places.begin(), places.end(), [&](const ShardPlace& place) {
    const DeviceState& device = state.devices.at(place.device);
    std::int64_t room = device.config.pages - pages_for_shard(state, device, place.model);
    bool blocked = false;
    for (const auto& [id, instance] : device.instances) {
      const ModelState& other = state.models.at(whole(state, id));
      if (other.config.id != model && stays(state, other) && !instance.is<Evicting>()) {
        room -= pages_that_stay(state, device, id, workspace_of(state, device, place.model));
        blocked = blocked || !state.models.at(model).config.shares || other.external() ||
                  (in_group(state, id, instance) && !run_beside(state, device, place.model, id));
      }
    }
    blocked = blocked || (state.models.at(model).config.shares && room < 0);
    return device.up && !device.leaving && device.claimed.value_or(model) == model && !blocked;
  });
}

void Claims::claim(ModelId id, DeviceId leader, std::string more, std::string instead) {
  state_.models.at(id).claim = {.leader = leader,
                                .began = state_.now,
                                .more = std::move(more),
                                .instead = std::move(instead)};
  claims_changed(id);
  for (const ShardPlace& place : block(state_, id, leader)) {
    state_.devices.at(place.device).claimed = id;
    replace(state_, place.device);
  }
  advance(id);
}

/// It is under way then, or not, and the model with it that it is a cut of.
void Claims::claims_changed(ModelId id) {
  reindex(state_, id);
  reindex(state_, asked(state_, id));
}

void Claims::cancel(ModelId model) {
  const std::optional<Claim> claim = std::exchange(state_.models.at(model).claim, std::nullopt);
  if (!claim) {
    return;
  }
  claims_changed(model);
  for (const ShardPlace& place : block(state_, model, claim->leader)) {
    DeviceState& device = state_.devices.at(place.device);
    device.claimed.reset();
    replace(state_, place.device);
    for (const auto& [id, instance] : device.instances) {
      const bool planned =
          device.plan &&
          std::count(device.plan->victims.begin(), device.plan->victims.end(), id) > 0;
      if (!planned) {
        residency_.resume(place.device, id);
      }
    }
  }
}

void Claims::look_after(ModelId model, DeviceId leader) {
  settle(state_, model, leader);
}

void Claims::advance() {
  each(state_.index.claiming, [this](ModelId id) { advance(id); });
}

void Claims::advance(ModelId id) {
  const ModelState& model = state_.models.at(id);
  const DeviceId leader = model.claim->leader;
  const bool wanted = model.claim->more.empty()
                          ? model.wanted()
                          : model.requests > 0 && !model.removed && model.unloads_asked.empty();
  if (!wanted || state_.now < model.retry_at || !claimable(state_, id, leader)) {
    cancel(id);
    return;
  }
  bool clear = true;
  for (const ShardPlace& place : block(state_, id, leader)) {
    clear = clear_device(state_.devices.at(place.device), place.model) && clear;
  }
  if (clear) {
    load_group(id, leader);
  }
}

/// Sends away what is on a device that was claimed for this shard, as far as that may go yet. True
/// when what is left can be evicted at once.
bool Claims::clear_device(const DeviceState& device, ModelId shard) {
  const ModelId wanted = whole(state_, shard);
  DrainPlan engines{.model = shard, .began = state_.models.at(wanted).claim->began};
  out_.wake_by(device.paused_until);
  bool clear = !device.plan && state_.now >= device.paused_until;
  const auto way = in_the_way(state_, device, shard);
  for (const auto& [id, instance] : device.instances) {
    const ModelState& model = state_.models.at(id);
    if (instance.is<Evicting>()) {
      // The worker keeps the order, for models of our own; but what comes back has to be gone.
      clear = clear && !model.external() && id != shard;
    } else if (instance.staged()) {
      // It stays if it is the one, and leaves at once if not.
    } else if (id == shard) {
      clear = leave_own(device, id) && clear;
    } else if (model.external()) {
      const bool gone = instance.is<Suspended>() && instance.kv_pages == 0;
      if (!gone && let_go(device, id, wanted)) {
        engines.victims.push_back(id);
      } else {
        clear = clear && gone;
      }
    } else if (!way || way->has(id)) {
      const bool leaves =
          let_go(device, id, wanted) && leading(state_, device, id)->in_flight.empty();
      if (leaves && way && std::ranges::count(way->steps_back, id) > 0) {
        residency_.step_back(device.config.id, id, wanted);
      } else if (leaves && model.grouped()) {
        residency_.evict(
            device.config.id, id, EvictMode::kWhenIdle, EvictionReason::kDisplaced, wanted);
      }
      clear = clear && leaves && !model.grouped();
    }
  }
  return plans_.suspend_victims(device.config.id, engines) && clear;
}

/// The claim's own group was sent away and has requests yet: it comes anew when these have ended.
/// True when it has left.
bool Claims::leave_own(const DeviceState& device, ModelId shard) {
  const Instance* leader = leading(state_, device, shard);
  if (leader == nullptr || !leader->runs() || !leader->in_flight.empty()) {
    return false;
  }
  if (may_step_back(state_, device, shard)) {
    residency_.step_back(device.config.id, shard, whole(state_, shard));
  } else {
    residency_.evict(device.config.id,
                     shard,
                     EvictMode::kWhenIdle,
                     EvictionReason::kDisplaced,
                     whole(state_, shard));
  }
  return false;
}

/// Sends the model nothing more, if it is idle or has been there for long enough. True when that is
/// so. An engine stays for its time though it is idle.
bool Claims::let_go(const DeviceState& device, ModelId id, ModelId wanted) {
  const ModelId all = whole(state_, id);
  const ModelState& model = state_.models.at(all);
  const Instance& instance = *leading(state_, device, id);
  if (instance.is<Serving>()) {
    const bool at_once = instance.in_flight.empty() && !model.external();
    const Instant until = instance.serving_since + (model.external() ? residence(model, instance)
                                                                     : model.config.min_residence);
    if (!at_once && state_.now < until) {
      out_.wake_by(until);
      return false;
    }
    residency_.drain_for(device.config.id, id, wanted, all);
  }
  return instance.is<Draining>() || instance.is<Suspended>();
}

/// Says that the group of the claim is loaded on devices of these names.
void Claims::note_load(const ModelState& model, const std::string& names) {
  const ModelId id = model.config.id;
  const Claim& claim = *model.claim;
  const Gathered before = gathered(state_, id, claim.leader);
  std::string why = (claim.more.empty() ? who_waits(model) : claim.more) +
                    (model.config.shares ? "; on " : "; to itself on ") + names;
  if (before.there > 0) {
    why += "; " + std::to_string(before.there) + " of its " + std::to_string(before.shards) +
           " parts are there";
  }
  std::optional<Duration> first_token;
  const Duration load = missing(state_, id, claim.leader);
  if (claim.more.empty() && !model.waiting.empty() && load > Duration{}) {
    first_token = load + prompt_time(model);  // What forming alone takes is not measured.
    why += describe_first_token(*first_token) + claim.instead;
    queues_.predict(id,
                    {.kind = policy::PlanKind::kGroup,
                     .device = claim.leader,
                     .at = state_.now,
                     .ttft = *first_token});
  }
  out_.note(claim.more.empty() ? DecisionKind::kLoad : DecisionKind::kAdd,
            id,
            claim.leader,
            std::move(why),
            {},
            first_token);
}

/// The devices of the block are empty but for what is idle: with the shards that are there already,
/// the others are loaded.
void Claims::load_group(ModelId id, DeviceId leader) {
  ModelState& model = state_.models.at(id);
  const std::vector<ShardPlace> places = block(state_, id, leader);
  policy::Action action{.model = id};
  std::string names;
  for (const ShardPlace& place : places) {
    action.devices.push_back(place.device);
    names += (names.empty() ? "" : "+") + state_.devices.at(place.device).config.name;
  }
  loads_.hold(action);
  const Gathered before = gathered(state_, id, leader);
  const LoadReason why = !model.claim->more.empty() ? LoadReason::kLoad
                         : model.waiting.empty()    ? LoadReason::kOperator
                                                    : LoadReason::kRequest;
  note_load(model, names);
  for (const ShardPlace& place : places) {
    load_shard(id, place, leader, why);
  }
  model.claim.reset();
  claims_changed(id);
  if (before.complete == before.shards && beside(state_, id, leader) == Beside::kNobody) {
    out_.wake_by(state_.now + Duration(1));  // Nobody has anything to say before it is formed.
  }
}

/// Evicts what is left on the device, and loads the shard unless it is staged there.
void Claims::load_shard(ModelId id, const ShardPlace& place, DeviceId leader, LoadReason why) {
  DeviceState& device = state_.devices.at(place.device);
  device.claimed.reset();
  replace(state_, place.device);
  const auto way = in_the_way(state_, device, place.model);
  for (const auto& [other, instance] : device.instances) {
    if (way && std::ranges::count(way->goes, other) == 0) {
      continue;
    }
    const bool drained = instance.is<Draining>() && !state_.models.at(other).external();
    const bool waits = staged(device, other) != nullptr && other != place.model;
    if (drained || waits) {
      const bool now = !drained && instance.is<Loading>();
      residency_.evict_here(place.device,
                            other,
                            now ? EvictMode::kNow : EvictMode::kWhenIdle,
                            EvictionReason::kDisplaced,
                            id);
    }
  }
  if (staged(device, place.model) != nullptr) {
    residency_.join(place.device, place.model, leader);
    return;
  }
  residency_.begin_load(place.device,
                        place.model,
                        why,
                        {.leader = place.device == leader ? std::nullopt : std::optional(leader)});
}

}  // namespace heddle::core::manager
