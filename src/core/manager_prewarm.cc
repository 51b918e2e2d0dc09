#include <algorithm>
#include <string>
#include <utility>

#include "core/manager_core_impl.h"
#include "policy/autoscale.h"

/// Models are loaded before they are asked for, by forecast (WarmServe).
namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// What is left of the most KV pages that a model had, after one period.
constexpr double kPeakKept = 0.98;
/// A replica that was prewarmed begins to serve at once.
constexpr Duration kHitTime = 1ms;
/// Of a model that was asked for so long ago [periods] it is not known yet that it is idle.
constexpr std::int64_t kInUse = 4;
/// Windows whose highest load stands for a model that cannot be forecast.
constexpr std::int64_t kRecentWindows = 12;

/// What a model needs where there is a workspace for it.
std::int64_t pages_beside_workspace(const policy::Footprint& footprint) {
  return policy::pages_to_load(footprint) - footprint.overhead_pages;
}

ModelId model_of(policy::ReplicaId replica) {
  return ModelId(replica.value() & 0xffff'ffffU);
}

}  // namespace

/// What lies where, as prewarming sees it. What models that run may still grow by is not free, nor
/// is a workspace for any model: beside that, what they need adds up.
policy::ReplicaMap ManagerCore::Impl::replica_map() {
  std::vector<policy::MapDevice> devices;
  std::vector<policy::PlacedReplica> replicas;
  for (auto& [device_id, device] : devices_) {
    const bool open = device.up && !device.plan && !device.alone && !device.claimed &&
                      !held(device) && now_ >= device.paused_until;
    const std::int64_t workspace = largest_workspace(device);
    std::int64_t growth = 0;
    for (auto& [id, instance] : device.instances) {
      const ModelState& model = models_.at(id);
      if (model.grouped()) {
        continue;
      }
      instance.kv_peak =
          std::max(instance.kv_pages,
                   static_cast<std::int64_t>(kPeakKept * static_cast<double>(instance.kv_peak)));
      if (model.foreign() || instance.stage == InstanceStage::kEvicting) {
        continue;
      }
      growth += busy(id, instance) ? instance.kv_peak - instance.kv_pages : 0;
      policy::ReplicaState state = policy::ReplicaState::kReady;
      if (instance.stage == InstanceStage::kLoading) {
        state = policy::ReplicaState::kLoading;
      } else if (instance.stage == InstanceStage::kDraining) {
        state = policy::ReplicaState::kDraining;
      } else if (busy(id, instance)) {
        state = policy::ReplicaState::kServing;
      }
      replicas.push_back({.id = replica_id(device_id, id),
                          .model = id,
                          .state = state,
                          .devices = {device_id},
                          .pages = pages_of(device, id, workspace),
                          .worth = {.score = worth(device, id)},
                          .pinned = model.config.pin || !instance.complete,
                          .last_used = std::max(model.last_used, instance.load_began),
                          .in_use = in_use(id, instance)});
    }
    const std::int64_t free = free_pages(device, workspace) - workspace - growth;
    devices.push_back({.id = device_id,
                       .free_pages = open ? std::max<std::int64_t>(free, 0) : 0,
                       .prewarmable = open,
                       .launchable = open});
  }
  for (const auto& [id, model] : models_) {
    for (const auto& [leader, others] : model.config.groups) {
      add_to_map(id, leader, devices, replicas);
    }
  }
  policy::ReplicaMap map(std::move(devices));
  for (policy::PlacedReplica& replica : replicas) {
    map.add(std::move(replica));
  }
  return map;
}

/// Whether it has requests, or had some a moment ago.
bool ManagerCore::Impl::in_use(ModelId id, const Instance& instance) const {
  return busy(id, instance) ||
         now_ - models_.at(id).demand.last_used() < kInUse * options_.planner.period;
}

/// A group is one replica, though it goes piece by piece while it waits apart. What is left of one
/// that has lost a shard is as good as free.
void ManagerCore::Impl::add_to_map(ModelId id,
                                   DeviceId leader,
                                   std::vector<policy::MapDevice>& devices,
                                   std::vector<policy::PlacedReplica>& replicas) const {
  const DeviceState& first = devices_.at(leader);
  const ModelState& model = models_.at(id);
  const auto found = first.instances.find(id);
  const bool here =
      found != first.instances.end() && found->second.stage != InstanceStage::kEvicting;
  const Gathered there = gathered(id, leader);
  const std::vector<ShardPlace> places = block(id, leader);
  if (here && there.whole()) {
    const Instance& instance = found->second;
    const std::int64_t workspace = largest_workspace(first);
    const bool serves = !instance.apart && instance.stage != InstanceStage::kLoading;
    policy::PlacedReplica replica{
        .id = replica_id(leader, id),
        .model = id,
        .state = there.complete < there.shards ? policy::ReplicaState::kLoading
                                               : policy::ReplicaState::kReady,
        .pages = instance.apart ? pages_of(first, id, workspace) : first.config.pages - workspace,
        .worth = {.score = resident_worth(first, id)},
        .pinned = model.config.pin || there.complete < there.shards,
        .last_used = std::max(model.last_used, instance.load_began),
        .in_use = serves && in_use(id, instance)};
    if (serves && instance.stage == InstanceStage::kDraining) {
      replica.state = policy::ReplicaState::kDraining;
    } else if (serves && busy(id, instance)) {
      replica.state = policy::ReplicaState::kServing;
    }
    for (const ShardPlace& place : places) {
      replica.devices.push_back(place.device);
    }
    replicas.push_back(std::move(replica));
    return;
  }
  for (const ShardPlace& place : places) {
    const DeviceState& device = devices_.at(place.device);
    const auto known = std::find_if(
        devices.begin(), devices.end(), [&](const auto& each) { return each.id == place.device; });
    if (known->prewarmable && left_over(device, place.model)) {
      known->free_pages += pages_of(device, place.model, largest_workspace(device));
    }
  }
}

/// What models are expected to need beyond the instances that serve.
std::vector<policy::ModelDemand> ManagerCore::Impl::expected_demands() {
  std::vector<policy::ModelDemand> demands;
  for (auto& [id, model] : models_) {
    if (model.foreign() || model.config.part_of || model.removed || model.sent_away ||
        now_ < model.retry_at || model.config.footprints.empty() ||
        (model.cut() && !options_.planner.evict)) {  // No group could run beside what stays.
      continue;
    }
    const DeviceState& device = devices_.at(model.config.footprints.begin()->first);
    std::int64_t instances = 0;
    for (const auto& [device_id, each] : devices_) {
      const auto found = each.instances.find(id);
      instances += found != each.instances.end() && busy(id, found->second) ? 1 : 0;
    }
    const policy::Forecast& expected = this->expected(model, device);
    const double capacity = policy::kScaleUpShare * static_cast<double>(model.config.batch);
    const bool hot = model.demand.load(now_) >= capacity / 2;
    policy::Load load{.mean = expected.load.mean,
                      .peak = std::max(expected.load.mean, expected.load.peak)};
    std::int64_t pages = pages_beside_workspace(model.config.footprints.begin()->second);
    std::vector<std::vector<DeviceId>> blocks;
    for (const auto& [leader, others] : model.config.groups) {
      std::vector<DeviceId>& devices = blocks.emplace_back();
      for (const ShardPlace& place : block(id, leader)) {
        const policy::Footprint& shard = models_.at(place.model).config.footprints.at(place.device);
        pages = std::max(pages, pages_beside_workspace(shard));
        devices.push_back(place.device);
      }
    }
    if (model.cut()) {  // It runs on one block, whatever its load.
      load = {.mean = std::min(load.mean, capacity), .peak = std::min(load.peak, capacity)};
    }
    demands.push_back(
        policy::gate_demand({.model = id,
                             .mean_load = load.mean,
                             .peak_load = load.peak,
                             .batch = model.config.batch,
                             .instances = instances,
                             .devices = blocks.empty() ? 1 : std::ssize(blocks.front()),
                             .blocks = std::move(blocks),
                             .pages_per_device = pages,
                             .load_time = load_time(model, device),
                             .hit_time = kHitTime,
                             .ttft = model.objectives().ttft},
                            expected,
                            hot ? policy::Heat::kHot : policy::Heat::kOther,
                            policy::recent_peak(model.demand.history(), window_, kRecentWindows)));
  }
  return demands;
}

/// Loads what the forecast expects, where it costs nobody more than it is worth; on each device one
/// at a time, and not while a load that somebody waits for is under way.
void ManagerCore::Impl::prewarm() {
  const std::vector<policy::ModelDemand> demands = expected_demands();
  if (demands.empty()) {
    return;
  }
  std::vector<policy::ReplicaId> victims;
  for (const policy::PrewarmDecision& decision : policy::plan_prewarm(
           replica_map(),
           demands,
           {.score = policy::ScoreVariant::kValue,
            .placement = options_.planner.value ? policy::PrewarmVariant::kCorrected
                                                : policy::PrewarmVariant::kRoomiest,
            .worth_known = options_.planner.value})) {
    if (decision.action == policy::PrewarmAction::kEvict) {
      victims.push_back(decision.replica);
    } else if (decision.action == policy::PrewarmAction::kLoad) {
      unfinished_ = !prewarm_on(decision, std::exchange(victims, {})) || unfinished_;
    }
  }
}

/// What leaves of the victims where something is to be loaded.
ManagerCore::Impl::Leaving ManagerCore::Impl::leaving(
    const std::vector<ShardPlace>& places, const std::vector<policy::ReplicaId>& victims) const {
  Leaving leaving;
  for (const policy::ReplicaId victim : victims) {
    const ModelId id = model_of(victim);
    const DeviceState& device = devices_.at(device_of(victim));
    const auto found = device.instances.find(id);
    const bool waits = found != device.instances.end() && found->second.apart;
    if (found == device.instances.end() || busy(id, found->second) ||
        found->second.stage != (waits ? InstanceStage::kMember : InstanceStage::kServing)) {
      leaving.busy = true;
      return leaving;
    }
    leaving.lost += resident_worth(device, id);
    if (models_.at(id).cut() && !waits) {
      leaving.groups.push_back({.model = id, .device = device.config.id});
      continue;
    }
    std::vector<ShardPlace> parts{{.model = id, .device = device.config.id}};
    for (const ShardPlace& part : waits ? block(id, device.config.id) : parts) {
      if (std::any_of(places.begin(), places.end(), [&](const ShardPlace& place) {
            return place.device == part.device;
          })) {
        leaving.at_once.push_back(part);
      }
    }
  }
  return leaving;
}

/// What is left of groups leaves, too, as far as its room is wanted: the map counts it as free.
void ManagerCore::Impl::add_left_over(const std::vector<ShardPlace>& places,
                                      Leaving& leaving) const {
  for (const ShardPlace& place : places) {
    const DeviceState& device = devices_.at(place.device);
    const std::int64_t workspace = workspace_of(device, place.model);
    std::int64_t room = free_pages(device, workspace);
    for (const ShardPlace& other : leaving.at_once) {
      room += other.device == place.device ? pages_of(device, other.model, workspace) : 0;
    }
    const std::int64_t need =
        policy::pages_to_load(models_.at(place.model).config.footprints.at(place.device));
    for (const auto& [id, instance] : device.instances) {
      const ShardPlace rest{.model = id, .device = place.device};
      if (room < need && whole(id) != whole(place.model) && left_over(device, id) &&
          std::count(leaving.at_once.begin(), leaving.at_once.end(), rest) == 0) {
        room += pages_of(device, id, workspace);
        leaving.at_once.push_back(rest);
      }
    }
  }
}

/// Carries out one decision of prewarming; false: not yet, look again.
bool ManagerCore::Impl::prewarm_on(const policy::PrewarmDecision& decision,
                                   const std::vector<policy::ReplicaId>& victims) {
  const ModelState& model = models_.at(decision.model);
  const DeviceId leader = decision.devices.front();
  std::vector<ShardPlace> places{{.model = decision.model, .device = leader}};
  if (model.cut()) {
    places = block(decision.model, leader);
  }
  for (const ShardPlace& place : places) {
    const DeviceState& device = devices_.at(place.device);
    const bool loading =
        std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
          const InstanceStage stage = entry.second.stage;
          const bool resident = stage == InstanceStage::kServing ||
                                (entry.second.apart && stage == InstanceStage::kMember);
          return stage == InstanceStage::kLoading ||
                 (resident && !entry.second.complete && !models_.at(entry.first).foreign());
        });
    if (loading) {
      return false;
    }
    if (device.instances.contains(place.model) && apart(device, place.model) == nullptr) {
      return true;  // It is being evicted.
    }
  }
  std::erase_if(places, [this](const ShardPlace& place) {
    return apart(devices_.at(place.device), place.model) != nullptr;
  });
  Leaving leaving = this->leaving(places, victims);
  if (leaving.busy || places.empty()) {
    return true;
  }
  add_left_over(places, leaving);
  // It takes no hold of devices and victims, nor minds who has: the map counts what others do
  // there, and what is lost with a victim is weighed.
  const policy::Action action{
      .kind = policy::ActionKind::kPrewarm, .model = decision.model, .worth = decision.worth.score};
  if (leaving.lost >= decision.worth.score) {
    return true;
  }
  for (const ShardPlace& group : leaving.groups) {
    evict(devices_.at(group.device),
          group.model,
          EvictMode::kWhenIdle,
          EvictionReason::kDisplaced,
          decision.model);
  }
  const bool taken = std::any_of(places.begin(), places.end(), [this](const ShardPlace& place) {
    return dedicated(devices_.at(place.device));  // Until that group is gone.
  });
  if (taken ||
      policy::make_diff({&action, 1}, not_before_, now_, options_.planner.period).actions.empty()) {
    return false;
  }
  load_ahead(decision, leader, places, leaving);
  return true;
}

void ManagerCore::Impl::load_ahead(const policy::PrewarmDecision& decision,
                                   DeviceId leader,
                                   const std::vector<ShardPlace>& places,
                                   const Leaving& leaving) {
  const ModelState& model = models_.at(decision.model);
  const policy::Forecast& expected = this->expected(model, devices_.at(leader));
  std::string because =
      number(expected.load.mean) + " requests at once expected, " + number(expected.load.peak) +
      " at most (forecasts are off by " + number(100 * expected.error) + " %): worth " +
      number(decision.worth.score) + " s of waiting, " + number(leaving.lost) + " s lost for it";
  if (model.cut()) {
    because += "; " + std::to_string(places.size()) + " of its " +
               std::to_string(gathered(decision.model, leader).shards) + " parts";
  }
  note(DecisionKind::kPrewarm, decision.model, leader, std::move(because));
  for (const ShardPlace& place : places) {
    DeviceState& device = devices_.at(place.device);
    for (const ShardPlace& other : leaving.at_once) {
      if (other.device == place.device) {
        evict(
            device, other.model, EvictMode::kWhenIdle, EvictionReason::kDisplaced, decision.model);
      }
    }
    Instance& instance = begin_load(device, place.model, LoadReason::kForecast);
    instance.apart = model.cut();
    if (place.device != leader) {
      instance.leader = leader;
    }
  }
}

}  // namespace heddle::core
