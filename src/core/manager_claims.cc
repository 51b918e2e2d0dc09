#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "core/manager_core_impl.h"

/// Where a group goes that somebody waits for: who wants a block of devices claims it; nothing else
/// comes there, what is there leaves, and when all its devices are empty the shards are loaded that
/// are not there yet.
namespace heddle::core {

/// Chooses a block as place() chooses a device. Who has waited long enough claims the one with the
/// least to do though it cannot be had at once: of several devices, one would always be busy.
void ManagerCore::Impl::place_group(ModelId id, Instant waiting_since) {
  std::vector<policy::PlacementDevice> views;
  const std::int64_t need = longest_waiting(models_.at(id));
  std::int64_t fits_elsewhere = 0;
  Duration load_takes{};
  for (const auto& [leader, others] : models_.at(id).config.groups) {
    const std::int64_t room = tokens_max(id, leader);
    if (room == 0 || need > room) {
      fits_elsewhere = std::max(fits_elsewhere, room);
      continue;
    }
    views.push_back(block_view(id, leader));
    if (options_.planner.value) {
      load_takes = std::max(load_takes, load_time(models_.at(id), devices_.at(leader)));
    }
    for (const ShardPlace& place : block(id, leader)) {
      wake_by(devices_.at(place.device).paused_until);
    }
  }
  const policy::Placement placement = policy::choose_placement(
      views, now_, waiting_since, {.drain_after = options_.drain_after, .load = load_takes});
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
           std::none_of(device.instances.begin(), device.instances.end(), [&, this](const auto& e) {
             return stays(models_.at(whole(e.first))) && whole(e.first) != model &&
                    e.second.stage != InstanceStage::kEvicting;
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
    } else if (instance.apart) {
      // It stays if it is the one, and leaves at once if not.
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
    begin_drain(instance, whole(id), device.config.id, wanted);
  }
  return instance.stage == InstanceStage::kDraining || instance.stage == InstanceStage::kSuspended;
}

/// The devices of the block are empty but for what is idle: with the shards that are there already,
/// the others are loaded.
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
  const Gathered before = gathered(id, leader);
  const std::string found = before.there == 0
                                ? ""
                                : "; " + std::to_string(before.there) + " of its " +
                                      std::to_string(before.shards) + " parts are there";
  note(DecisionKind::kLoad, id, leader, who_waits(model) + "; to itself on " + names + found);
  for (const ShardPlace& place : places) {
    DeviceState& device = devices_.at(place.device);
    device.claimed.reset();
    for (const auto& [other, instance] : device.instances) {
      if (instance.stage == InstanceStage::kDraining && !models_.at(other).foreign()) {
        evict_here(device, other, EvictMode::kWhenIdle, EvictionReason::kDisplaced, id);
      } else if (apart(device, other) != nullptr && other != place.model) {
        const bool loading = instance.stage == InstanceStage::kLoading;
        evict_here(device,
                   other,
                   loading ? EvictMode::kNow : EvictMode::kWhenIdle,
                   EvictionReason::kDisplaced,
                   id);
      }
    }
    if (apart(device, place.model) != nullptr) {
      Instance& shard = device.instances.at(place.model);
      shard.apart = false;
      shard.stage = InstanceStage::kLoading;
      continue;
    }
    Instance& shard = begin_load(device, place.model, why);
    if (place.device != leader) {
      shard.leader = leader;
    }
  }
  model.claims.reset();
}

}  // namespace heddle::core
