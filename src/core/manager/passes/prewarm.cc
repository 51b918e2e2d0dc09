#include "policy/prewarm.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "core/manager/displaced_images.h"
#include "core/manager/expected_demands.h"
#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/value.h"
#include "core/manager/views.h"
#include "policy/value.h"

namespace heddle::core::manager {
namespace {

/// Of a model that was asked for so long ago [periods] it is not known yet that it is idle.
constexpr std::int64_t kInUse = 4;

/// Whether it has requests, or had some a moment ago.
bool in_use(const State& state, ModelId id, const Instance& instance) {
  return busy(state, id, instance) ||
         state.now - state.models.at(id).demand.last_used() < kInUse * state.options.planner.period;
}

// ---- What lies where ----

/// How an instance stands, as prewarming sees it.
policy::ReplicaState replica_state(const State& state, ModelId id, const Instance& instance) {
  return instance.is<Loading>()      ? policy::ReplicaState::kLoading
         : instance.is<Draining>()   ? policy::ReplicaState::kDraining
         : busy(state, id, instance) ? policy::ReplicaState::kServing
                                     : policy::ReplicaState::kReady;
}

/// Whether its next request is likely to come soon: it was idle for no longer than three of its
/// mean gaps, and half a window.
bool due_soon(const State& state, const ModelState& model) {
  const Duration gaps =
      from_seconds(static_cast<double>(policy::kGapsAhead) * model.demand.mean_gap());
  return state.now - model.demand.last_used() <=
         std::min<Duration>(gaps, state.options.planner.calendar.window / 2);
}

/// Whether it never leaves for something that is to be prewarmed, or not yet. Bringing an engine
/// back takes long: it stays as it does where requests want its place, and while it is in use. One
/// on several devices never goes for a forecast.
bool pinned(const State& state, const ModelState& model, const Instance& instance) {
  const bool settled = model.external()
                           ? instance.is<Serving>() && !due_soon(state, model) &&
                                 state.now >= instance.serving_since + residence(model, instance)
                           : instance.complete;
  return stays(state, model) || on_several(model) || !settled;
}

policy::PlacedReplica placed_replica(const State& state,
                                     const DeviceState& device,
                                     ModelId id,
                                     std::int64_t workspace) {
  const ModelState& model = state.models.at(id);
  const Instance& instance = device.instances.at(id);
  return {.id = replica_id(device.config.id, id),
          .model = id,
          .state = replica_state(state, id, instance),
          .devices = {device.config.id},
          .pages = pages_of(state, device, id, workspace),
          .worth = {.score = worth(state, device, id)},
          .pinned = pinned(state, model, instance),
          .last_used = std::max(model.last_used, instance.load_began),
          .in_use = in_use(state, id, instance)};
}

/// A group that is there is one replica, though it goes piece by piece while it is staged.
policy::PlacedReplica placed_group(const State& state, ModelId id, DeviceId leader) {
  const DeviceState& first = state.devices.at(leader);
  const ModelState& model = state.models.at(id);
  const Instance& instance = first.instances.at(id);
  const Gathered there = gathered(state, id, leader);
  const std::int64_t workspace = first.workspace;
  const bool serves = !instance.staged() && !instance.is<Loading>();
  const bool complete = there.complete == there.shards;
  policy::PlacedReplica replica{
      .id = replica_id(leader, id),
      .model = id,
      .state = complete ? policy::ReplicaState::kReady : policy::ReplicaState::kLoading,
      .pages = instance.staged() || model.config.shares ? pages_of(state, first, id, workspace)
                                                        : first.config.pages - workspace,
      .worth = {.score = worth(state, first, id)},
      .pinned = model.config.pin || !complete,
      .last_used = std::max(model.last_used, instance.load_began),
      .in_use = serves && in_use(state, id, instance)};
  if (serves && instance.is<Draining>()) {
    replica.state = policy::ReplicaState::kDraining;
  } else if (serves && busy(state, id, instance)) {
    replica.state = policy::ReplicaState::kServing;
  }
  for (const ShardPlace& place : block(state, id, leader)) {
    replica.devices.push_back(place.device);
  }
  return replica;
}

/// What is left of a group that has lost a shard is as good as free.
void free_left_over(const State& state,
                    ModelId id,
                    DeviceId leader,
                    std::vector<policy::MapDevice>& devices) {
  for (const ShardPlace& place : block(state, id, leader)) {
    const DeviceState& device = state.devices.at(place.device);
    const auto known = std::find_if(
        devices.begin(), devices.end(), [&](const auto& each) { return each.id == place.device; });
    if (known->prewarmable && left_over(state, device, place.model)) {
      known->free_pages += pages_of(state, device, place.model, device.workspace);
    }
  }
}

/// What models of ours that run may still grow by is not free, nor is a workspace for any model:
/// beside that, what they need adds up. Nothing is free beside a group that has requests, unless
/// `beside` says so.
policy::ReplicaMap replica_map(const State& state, bool beside) {
  std::vector<policy::MapDevice> devices;
  std::vector<policy::PlacedReplica> replicas;
  for (const auto& [device_id, device] : state.devices) {
    const bool open = device.up && !device.leaving && !device.plan && !device.alone &&
                      !device.claimed && !device.reserved && !held(state, device) &&
                      state.now >= device.paused_until &&
                      (beside || !device.dedicated || !runs_group(state, device));
    const std::int64_t workspace = device.workspace;
    std::int64_t growth = 0;
    for (const auto& [id, instance] : device.instances) {
      const ModelState& model = state.models.at(id);
      if (!model.grouped() && !instance.is<Evicting>() && !instance.is<Suspended>()) {
        const bool grows = busy(state, id, instance) && !model.external();
        growth += grows ? instance.kv_peak - instance.kv_pages : 0;
        replicas.push_back(placed_replica(state, device, id, workspace));
      }
    }
    const std::int64_t free = free_pages(state, device, workspace) - workspace - growth;
    devices.push_back({.id = device_id,
                       .free_pages = open ? std::max<std::int64_t>(free, 0) : 0,
                       .prewarmable = open,
                       .launchable = open});
  }
  for (const ModelId id : state.index.led) {
    for (const auto& [leader, others] : state.models.at(id).config.groups) {
      const auto& instances = state.devices.at(leader).instances;
      const auto found = instances.find(id);
      const bool here = found != instances.end() && !found->second.is<Evicting>();
      if (here && gathered(state, id, leader).whole()) {
        replicas.push_back(placed_group(state, id, leader));
      } else {
        free_left_over(state, id, leader, devices);
      }
    }
  }
  policy::ReplicaMap map(std::move(devices));
  for (policy::PlacedReplica& replica : replicas) {
    map.add(std::move(replica));
  }
  return map;
}

// ---- What is missing ----

/// Whether a model should have a replica that it has not, as far as is seen without looking at what
/// lies where: of a sharded model each that it should have counts.
bool lacks_any(const State& state, const std::vector<policy::ModelDemand>& demands) {
  return std::ranges::any_of(demands, [&](const policy::ModelDemand& demand) {
    const std::int64_t wanted = policy::desired_count(demand, policy::ScoreVariant::kValue);
    const ModelState& model = state.models.at(demand.model);
    if (wanted == 0 || model.grouped() || model.external()) {
      return wanted > 0;
    }
    return wanted > std::ranges::count_if(model.spots, [&](const Spot& spot) {
             const Instance& instance = *spot.instance;
             return !instance.is<Evicting>() &&
                    replica_state(state, demand.model, instance) != policy::ReplicaState::kServing;
           });
  });
}

// ---- What is done ----

/// What has to leave for something that is to be prewarmed.
struct Leaving {
  std::vector<ShardPlace> at_once{};  ///< Idle; of a staged group, what is in the way.
  std::vector<ShardPlace> groups{};   ///< Led from there, idle; they take their time.
  std::vector<ShardPlace> engines{};  ///< External ones, idle; these take their time, too.
  double lost = 0;                    ///< Worth of all of these, and of images for it [s].
  bool busy = false;                  ///< One of them is in use by now.
};

/// What leaves of the victims where something is to be loaded.
Leaving leaving_victims(const State& state,
                        const std::vector<ShardPlace>& places,
                        const std::vector<policy::ReplicaId>& victims) {
  Leaving leaving;
  for (const policy::ReplicaId victim : victims) {
    const ModelId id = model_of(victim);
    const DeviceState& device = state.devices.at(device_of(victim));
    const auto found = device.instances.find(id);
    const bool waits = found != device.instances.end() && found->second.staged();
    if (found == device.instances.end() || busy(state, id, found->second) ||
        !(waits ? found->second.is<Member>() : found->second.is<Serving>())) {
      leaving.busy = true;
      return leaving;
    }
    leaving.lost += worth(state, device, id);
    if (state.models.at(id).external()) {
      leaving.engines.push_back({.model = id, .device = device.config.id});
      continue;
    }
    if (state.models.at(id).sharded() && !waits) {
      leaving.groups.push_back({.model = id, .device = device.config.id});
      continue;
    }
    for (const ShardPlace& part : block(state, id, device.config.id)) {
      if (std::any_of(places.begin(), places.end(), [&](const ShardPlace& place) {
            return place.device == part.device;
          })) {
        leaving.at_once.push_back(part);
      }
    }
  }
  return leaving;
}

bool lists(const std::vector<ShardPlace>& places, const ShardPlace& place) {
  return std::ranges::find(places, place) != places.end();
}

/// What may not be beside what comes leaves, too, whatever room there is.
void add_displaced(const State& state, const std::vector<ShardPlace>& places, Leaving& leaving) {
  for (const ShardPlace& place : places) {
    const DeviceState& device = state.devices.at(place.device);
    for (const auto& [id, instance] : device.instances) {
      const ShardPlace other{.model = id, .device = place.device};
      if (!displaces(state.models.at(place.model), id) || instance.is<Suspended>() ||
          lists(leaving.engines, other) || lists(leaving.at_once, other)) {
        continue;
      }
      const ModelState& model = state.models.at(id);
      if (in_use(state, id, instance) || pinned(state, model, instance) ||
          !instance.is<Serving>() || model.grouped()) {
        leaving.busy = true;
        return;
      }
      leaving.lost += worth(state, device, id);
      (model.external() ? leaving.engines : leaving.at_once).push_back(other);
    }
  }
}

/// What is left of groups leaves, too, as far as its room is wanted: the map counts it as free.
void add_left_over(const State& state, const std::vector<ShardPlace>& places, Leaving& leaving) {
  for (const ShardPlace& place : places) {
    const DeviceState& device = state.devices.at(place.device);
    const std::int64_t workspace = workspace_of(state, device, place.model);
    std::int64_t room = free_pages(state, device, workspace);
    for (const ShardPlace& other : leaving.at_once) {
      room += other.device == place.device ? pages_of(state, device, other.model, workspace) : 0;
    }
    const std::int64_t need = pages_to_come(state, device, place.model);
    for (const auto& [id, instance] : device.instances) {
      const ShardPlace rest{.model = id, .device = place.device};
      if (room < need && whole(state, id) != whole(state, place.model) &&
          left_over(state, device, id) && !lists(leaving.at_once, rest)) {
        room += pages_of(state, device, id, workspace);
        leaving.at_once.push_back(rest);
      }
    }
  }
}

/// Whether weights are on their way to the device.
bool loads_now(const State& state, const DeviceState& device) {
  return std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
    const Instance& instance = entry.second;
    const bool resident = instance.is<Serving>() || (instance.staged() && instance.is<Member>());
    return instance.is<Loading>() ||
           (resident && !instance.complete && !state.models.at(entry.first).external());
  });
}

void load_ahead(const Parts& core,
                const policy::PrewarmDecision& decision,
                const std::vector<ShardPlace>& places,
                const Leaving& leaving) {
  const State& state = core.state;
  const ModelState& model = state.models.at(decision.model);
  const DeviceId leader = decision.devices.front();
  const policy::Forecast& forecast = expected(state, model, state.devices.at(leader));
  std::string because =
      number(forecast.load.mean) + " requests at once expected, " + number(forecast.load.peak) +
      " at most (forecasts are off by " + number(100 * forecast.error) + " %): worth " +
      number(decision.worth.score) + " s of waiting, " + number(leaving.lost) + " s lost for it";
  if (model.external()) {
    because += standing_by(state, decision.model) ? "; it stood by" : "; it is started";
  }
  if (model.sharded()) {
    because += "; " + std::to_string(places.size()) + " of its " +
               std::to_string(gathered(state, decision.model, leader).shards) + " parts";
  }
  core.out.note(DecisionKind::kPrewarm, decision.model, leader, std::move(because));
  for (const ShardPlace& place : places) {
    for (const ShardPlace& other : leaving.at_once) {
      if (other.device == place.device) {
        core.residency.evict(place.device,
                             other.model,
                             EvictMode::kWhenIdle,
                             EvictionReason::kDisplaced,
                             decision.model);
      }
    }
    core.residency.begin_load(
        place.device,
        place.model,
        LoadReason::kForecast,
        {.leader = place.device == leader ? std::nullopt : std::optional(leader),
         .staged = model.sharded()});
  }
}

/// What is missing of the model on the devices of the decision; nullopt: something else is on its
/// way there, look again.
std::optional<std::vector<ShardPlace>> missing_places(const State& state,
                                                      const policy::PrewarmDecision& decision) {
  std::vector<ShardPlace> places;
  for (const ShardPlace& place : block(state, decision.model, decision.devices.front())) {
    const DeviceState& device = state.devices.at(place.device);
    if (loads_now(state, device)) {
      return std::nullopt;
    }
    if (staged(device, place.model) != nullptr) {
      continue;
    }
    const auto here = device.instances.find(place.model);
    if (here != device.instances.end() && !here->second.is<Suspended>()) {
      return std::vector<ShardPlace>{};  // It is being evicted.
    }
    places.push_back(place);
  }
  return places;
}

/// Has the external engines leave that are in the way, as far as that takes to make room.
void suspend_engines(const Parts& core,
                     ModelId wanted,
                     const std::vector<ShardPlace>& places,
                     const Leaving& leaving) {
  const State& state = core.state;
  for (const ShardPlace& place : places) {
    const DeviceState& device = state.devices.at(place.device);
    const ModelState& model = state.models.at(place.model);
    const std::int64_t workspace = workspace_of(state, device, place.model);
    std::int64_t short_by = pages_to_come(state, device, place.model) +
                            (model.external() ? device.workspace : 0) -
                            free_pages(state, device, workspace);
    for (const ShardPlace& other : leaving.at_once) {
      short_by -=
          other.device == place.device ? pages_of(state, device, other.model, workspace) : 0;
    }
    for (const ShardPlace& engine : leaving.engines) {
      if (engine.device != place.device) {
        continue;
      }
      const bool for_room = short_by > 0 || !displaces(model, engine.model);
      const std::int64_t frees =
          for_room ? std::clamp<std::int64_t>(short_by, 1, pages_of(state, device, engine.model))
                   : 0;
      short_by -= frees;
      core.residency.evict(engine.device,
                           engine.model,
                           EvictMode::kWhenIdle,
                           EvictionReason::kDisplaced,
                           wanted,
                           frees);
    }
  }
}

/// Carries out one decision of prewarming; false: not yet, look again.
bool prewarm_on(const Parts& core,
                const policy::PrewarmDecision& decision,
                const std::vector<policy::ReplicaId>& victims,
                DisplacedImages& images) {
  const State& state = core.state;
  const auto places = missing_places(state, decision);
  if (!places || places->empty()) {
    return places.has_value();
  }
  Leaving leaving = leaving_victims(state, *places, victims);
  if (!leaving.busy) {
    add_displaced(state, *places, leaving);
  }
  if (leaving.busy) {
    return true;
  }
  add_left_over(state, *places, leaving);
  leaving.lost += state.models.at(decision.model).external() ? 0 : images.worth(*places);
  if (leaving.lost >= decision.worth.score) {
    return true;
  }
  for (const ShardPlace& group : leaving.groups) {
    core.residency.evict(group.device,
                         group.model,
                         EvictMode::kWhenIdle,
                         EvictionReason::kDisplaced,
                         decision.model);
  }
  suspend_engines(core, decision.model, *places, leaving);
  const bool taken = !leaving.engines.empty() || !leaving.groups.empty() ||
                     std::ranges::any_of(*places, [&](const ShardPlace& place) {
                       const DeviceState& device = state.devices.at(place.device);
                       return has_to_itself(state, device);  // Until that group is gone.
                     });
  // It takes no hold of devices and victims, nor minds what has: the map counts what others do
  // there, and what is lost with a victim is weighed.
  if (taken || !core.loads.admits({.kind = policy::ActionKind::kPrewarm,
                                   .model = decision.model,
                                   .worth = decision.worth.score})) {
    return false;
  }
  load_ahead(core, decision, *places, leaving);
  return true;
}

/// Whether an external engine is on its way out, which may make room.
bool engine_leaves(const State& state) {
  return std::ranges::any_of(state.index.mixed, [&](DeviceId id) {
    return std::ranges::any_of(state.devices.at(id).instances, [&](const auto& entry) {
      return entry.second.template is<Evicting>() && state.models.at(entry.first).external();
    });
  });
}

/// Decides for all of these models, and does what can be done now. Gives those that found no place.
std::vector<policy::ModelDemand> load_what_lacks(const Parts& core,
                                                 const std::vector<policy::ModelDemand>& demands,
                                                 bool beside) {
  const bool value = core.state.options.planner.value;
  std::vector<policy::ReplicaId> victims;
  std::set<ModelId> nowhere;
  DisplacedImages images(core.state);
  for (const policy::PrewarmDecision& decision :
       policy::plan_prewarm(replica_map(core.state, beside),
                            demands,
                            {.score = policy::ScoreVariant::kValue,
                             .placement = value ? policy::PrewarmVariant::kCorrected
                                                : policy::PrewarmVariant::kRoomiest,
                             .worth_known = value})) {
    if (decision.action == policy::PrewarmAction::kEvict) {
      victims.push_back(decision.replica);
    } else if (decision.action == policy::PrewarmAction::kLoad &&
               !prewarm_on(core, decision, std::exchange(victims, {}), images)) {
      core.loads.look_again();
    } else if (decision.action == policy::PrewarmAction::kSkip) {
      nowhere.insert(decision.model);
    }
  }
  std::vector<policy::ModelDemand> left;
  std::ranges::copy_if(demands, std::back_inserter(left), [&](const policy::ModelDemand& demand) {
    return nowhere.contains(demand.model);
  });
  return left;
}

/// Whether a group with requests is somewhere, beside which a model could be.
bool any_group_runs(const State& state) {
  return std::ranges::any_of(state.index.mixed, [&](DeviceId id) {
    const DeviceState& device = state.devices.at(id);
    return device.dedicated && runs_group(state, device);
  });
}

}  // namespace

void prewarm(const Parts& core) {
  std::vector<policy::ModelDemand> demands = expected_demands(core);
  if (demands.empty()) {
    return;
  }
  core.residency.decay_peaks();
  if (lacks_any(core.state, demands)) {  // Else what is there stays, which needs no decision.
    add_sources(core.state, demands);
    const std::vector<policy::ModelDemand> left = load_what_lacks(core, demands, false);
    if (!left.empty() && any_group_runs(core.state)) {
      load_what_lacks(core, left, true);  // Both would be slower: only what has no other place.
    }
  }
  if (engine_leaves(core.state)) {
    core.loads.look_again();
  }
}

}  // namespace heddle::core::manager
