#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "core/manager_core_impl.h"

/// Models that are cut over several devices (tensor parallelism). Their shards are models that are
/// loaded and evicted together, on a block of devices that they have to themselves. Who wants such
/// a block claims it: nothing else comes there, what is there leaves, and when all its devices are
/// empty the shards are loaded. The group serves once each is complete to the last byte: a step
/// that waited for weights on one device would hold up all of them.
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
  if (!instance.leader) {
    return &instance;
  }
  const auto& there = devices_.at(*instance.leader).instances;
  const auto found = there.find(whole(model));
  return found == there.end() ? nullptr : &found->second;
}

Instance* ManagerCore::Impl::leading(const DeviceState& device, ModelId model) {
  const std::optional<DeviceId> leader = device.instances.at(model).leader;
  auto& there = devices_.at(leader.value_or(device.config.id)).instances;
  const auto found = there.find(leader ? whole(model) : model);
  return found == there.end() ? nullptr : &found->second;
}

/// A group is there: the device is no place for anything else until it has left.
bool ManagerCore::Impl::dedicated(const DeviceState& device) const {
  return std::any_of(device.instances.begin(), device.instances.end(), [this](const auto& entry) {
    return models_.at(entry.first).grouped();
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
  bool whole = true;
  bool complete = leader != nullptr && leader->complete;
  for (const ShardPlace& place : models_.at(id).config.groups.at(leader_id)) {
    DeviceState& device = devices_.at(place.device);
    const auto shard = device.instances.find(place.model);
    if (shard == device.instances.end()) {
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
  } else if (complete && !leader->forming) {
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
  }
  ModelState& model = models_.at(formed.model);
  model.failures = 0;
  model.failure.reset();
  note_complete(first, formed.model, leader->second);
}

/// Sends the groups away that are in a plan's way. True when nothing of them is left here that
/// would not be gone before what is loaded next.
bool ManagerCore::Impl::dissolve_victims(DeviceState& device, const DrainPlan& plan) {
  bool left = true;
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    if (found == device.instances.end() || !models_.at(victim).grouped() ||
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

// ---- Where a group goes ----

/// A block of devices as if it were one: whatever is there has to go.
policy::PlacementDevice ManagerCore::Impl::block_view(ModelId model, DeviceId leader) const {
  policy::PlacementDevice all{.id = leader, .available = true};
  for (const ShardPlace& place : block(model, leader)) {
    policy::PlacementDevice part = view(devices_.at(place.device), place.model);
    all.need_pages += part.pages;
    all.pages += part.pages;
    all.free_pages += part.free_pages;
    all.available = all.available && part.available;
    for (policy::ResidentView& resident : part.residents) {
      resident.displaced = true;
      all.residents.push_back(resident);
    }
  }
  return all;
}

/// Chooses a block as place() chooses a device. Who has waited long enough claims the one with the
/// least to do though it cannot be had at once: of several devices, one would always be busy.
void ManagerCore::Impl::place_group(ModelId id, Instant waiting_since) {
  std::vector<policy::PlacementDevice> views;
  const std::int64_t need = longest_waiting(models_.at(id));
  std::int64_t fits_elsewhere = 0;
  for (const auto& [leader, others] : models_.at(id).config.groups) {
    const std::int64_t room = tokens_max(id, leader);
    if (room == 0 || need > room) {
      fits_elsewhere = std::max(fits_elsewhere, room);
      continue;
    }
    views.push_back(block_view(id, leader));
    for (const ShardPlace& place : block(id, leader)) {
      wake_by(devices_.at(place.device).paused_until);
    }
  }
  const policy::Placement placement =
      policy::choose_placement(views, now_, waiting_since, {.drain_after = options_.drain_after});
  note_waiting(id, placement);
  std::optional<DeviceId> chosen;
  switch (placement.outcome) {
    case policy::PlacementOutcome::kServe:
      break;
    case policy::PlacementOutcome::kLoad:
    case policy::PlacementOutcome::kDrain:
      chosen = placement.device;
      break;
    case policy::PlacementOutcome::kWait:
      wake_by(placement.retry_at.value_or(now_));
      wake_by(waiting_since + options_.drain_after);
      chosen = now_ >= waiting_since + options_.drain_after ? least_busy(views, id) : std::nullopt;
      break;
    case policy::PlacementOutcome::kNever:
      fail_waiting(id,
                   {Code::kUnavailable,
                    too_large(models_.at(id)) + "; it is cut over " +
                        std::to_string(models_.at(id).config.groups.begin()->second.size() + 1) +
                        " devices, which it must have to itself"},
                   fits_elsewhere);
      if (fits_elsewhere > 0 && models_.at(id).wanted()) {
        place_group(id, waiting_since);
      }
      break;
  }
  if (chosen) {
    claim(id, *chosen);
    advance_claim(id);
  }
}

/// Among blocks that can be claimed, the one whose models have the fewest requests.
std::optional<DeviceId> ManagerCore::Impl::least_busy(
    const std::vector<policy::PlacementDevice>& views, ModelId model) const {
  std::optional<std::pair<std::int64_t, DeviceId>> best;
  for (const policy::PlacementDevice& view : views) {
    std::int64_t queue = 0;
    bool engines = false;
    for (const policy::ResidentView& resident : view.residents) {
      queue += resident.queue;
      // A suspended engine may hold pages for as long as it has requests.
      engines = engines || models_.at(resident.model).foreign();
    }
    if (!engines && claimable(model, view.id)) {
      const std::pair offer(queue, view.id);
      best = best ? std::min(*best, offer) : offer;
    }
  }
  return best ? std::optional(best->second) : std::nullopt;
}

/// Whether all devices of the block are up, nobody else's, and free of what never leaves.
bool ManagerCore::Impl::claimable(ModelId model, DeviceId leader) const {
  const std::vector<ShardPlace> places = block(model, leader);
  return std::all_of(places.begin(), places.end(), [&, this](const ShardPlace& place) {
    const DeviceState& device = devices_.at(place.device);
    return device.up && device.claimed.value_or(model) == model &&
           std::none_of(device.instances.begin(), device.instances.end(), [this](const auto& e) {
             return stays(models_.at(whole(e.first))) && e.second.stage != InstanceStage::kEvicting;
           });
  });
}

void ManagerCore::Impl::claim(ModelId model, DeviceId leader) {
  ModelState& state = models_.at(model);
  state.claims = leader;
  state.claimed_at = now_;
  for (const ShardPlace& place : block(model, leader)) {
    devices_.at(place.device).claimed = model;
  }
}

/// Those that were to make way for it stay.
void ManagerCore::Impl::cancel_claim(ModelId model) {
  const std::optional<DeviceId> leader = std::exchange(models_.at(model).claims, std::nullopt);
  if (!leader) {
    return;
  }
  for (const ShardPlace& place : block(model, *leader)) {
    DeviceState& device = devices_.at(place.device);
    device.claimed.reset();
    for (const auto& [id, instance] : device.instances) {
      Instance* first = leading(device, id);
      const bool planned =
          device.plan &&
          std::count(device.plan->victims.begin(), device.plan->victims.end(), id) > 0;
      if (first != nullptr && first->stage == InstanceStage::kDraining && !planned) {
        first->stage = InstanceStage::kServing;
      }
    }
  }
}

void ManagerCore::Impl::advance_claims() {
  for (const auto& [id, model] : models_) {
    if (model.claims) {
      advance_claim(id);
    }
  }
}

void ManagerCore::Impl::advance_claim(ModelId id) {
  const ModelState& model = models_.at(id);
  const DeviceId leader = *model.claims;
  if (!model.wanted() || now_ < model.retry_at || !claimable(id, leader)) {
    cancel_claim(id);
    return;
  }
  bool clear = true;
  for (const ShardPlace& place : block(id, leader)) {
    clear = clear_device(devices_.at(place.device), place.model) && clear;
  }
  if (clear) {
    load_group(id, leader);
  }
}

/// Sends away what is on a device that was claimed for this shard, as far as that may go yet. True
/// when what is left can be evicted at once.
bool ManagerCore::Impl::clear_device(DeviceState& device, ModelId shard) {
  const ModelId wanted = whole(shard);
  DrainPlan engines{.model = shard, .began = models_.at(wanted).claimed_at};
  wake_by(device.paused_until);
  bool clear = !device.plan && now_ >= device.paused_until;
  for (const auto& [id, instance] : device.instances) {
    const ModelState& model = models_.at(id);
    if (instance.stage == InstanceStage::kEvicting) {
      // The worker keeps the order, for models of our own; but what comes back has to be gone.
      clear = clear && !model.foreign() && id != shard;
    } else if (model.foreign()) {
      const bool gone = instance.stage == InstanceStage::kSuspended && instance.kv_pages == 0;
      if (!gone && let_go(device, id, wanted)) {
        engines.victims.push_back(id);
      } else {
        clear = clear && gone;
      }
    } else {
      const bool leaves = let_go(device, id, wanted) && leading(device, id)->in_flight.empty();
      if (leaves && model.grouped()) {
        evict(device, id, EvictMode::kWhenIdle, EvictionReason::kDisplaced, wanted);
      }
      clear = clear && leaves && !model.grouped();
    }
  }
  return suspend_victims(device, engines) && clear;
}

/// Sends the model nothing more, if it is idle or has been there for long enough. True when that is
/// so. An engine stays for its time though it is idle.
bool ManagerCore::Impl::let_go(const DeviceState& device, ModelId id, ModelId wanted) {
  const ModelState& model = models_.at(whole(id));
  Instance& instance = *leading(device, id);
  if (instance.stage == InstanceStage::kServing) {
    const bool at_once = instance.in_flight.empty() && !model.foreign();
    const Instant until = instance.serving_since + (model.foreign() ? residence(model, instance)
                                                                    : model.config.min_residence);
    if (!at_once && now_ < until) {
      wake_by(until);
      return false;
    }
    instance.stage = InstanceStage::kDraining;
    note(DecisionKind::kDrain,
         whole(id),
         device.config.id,
         std::to_string(instance.in_flight.size()) + " requests of its own end first",
         wanted);
  }
  return instance.stage == InstanceStage::kDraining || instance.stage == InstanceStage::kSuspended;
}

/// The devices of the block are empty but for what is idle.
void ManagerCore::Impl::load_group(ModelId id, DeviceId leader) {
  ModelState& model = models_.at(id);
  const std::vector<ShardPlace> places = block(id, leader);
  policy::Action action{.model = id};
  std::string names;
  for (const ShardPlace& place : places) {
    action.devices.push_back(place.device);
    names += (names.empty() ? "" : "+") + devices_.at(place.device).config.name;
  }
  not_before_.hold(action, now_ + policy::hold_after(action.kind, options_.planner.period));
  const LoadReason why = model.waiting.empty() ? LoadReason::kOperator : LoadReason::kRequest;
  note(DecisionKind::kLoad, id, leader, who_waits(model) + "; to itself on " + names);
  for (const ShardPlace& place : places) {
    DeviceState& device = devices_.at(place.device);
    device.claimed.reset();
    for (const auto& [other, instance] : device.instances) {
      if (instance.stage == InstanceStage::kDraining && !models_.at(other).foreign()) {
        evict_here(device, other, EvictMode::kWhenIdle, EvictionReason::kDisplaced, id);
      }
    }
    Instance& shard = begin_load(device, place.model, why);
    if (place.device != leader) {
      shard.leader = leader;
    }
  }
  model.claims.reset();
}

/// What a claim promises to its group, and a group to its requests.
void ManagerCore::Impl::check_groups() const {
  for (const auto& [id, device] : devices_) {
    HEDDLE_CHECK(!device.claimed || models_.at(*device.claimed).claims);
    for (const auto& [model, instance] : device.instances) {
      if (!models_.at(model).grouped() || instance.stage == InstanceStage::kEvicting) {
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
