#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "core/manager_core_impl.h"
#include "policy/autoscale.h"
#include "policy/kv_moves.h"
#include "policy/kv_placement.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// Periods between looking for moves, and for which the present demand is expected to last.
constexpr std::int64_t kBalance = 10;
constexpr std::int64_t kDemandLasts = 60;

}  // namespace

// ---- Looking ahead ----

/// What is decided by the clock rather than for a request that waits. Looks once a period while
/// there is anything to look at, else at the end of the window.
void ManagerCore::Impl::plan_ahead() {
  const PlannerOptions& planner = options_.planner;
  finish_moves();
  if (drain_deadline_ || (!planner.prewarm && !planner.pressure && !planner.replicas)) {
    return;
  }
  if (now_ >= plan_at_) {
    // Late by a little, it keeps its beat.
    plan_at_ = std::max(plan_at_ + planner.period, now_ + planner.period / 2);
    not_before_.expire(now_);
    unfinished_ = false;
    turn_window();
    if (planner.replicas) {
      scale();
    }
    if (planner.pressure && now_ >= balance_at_) {
      balance_at_ = now_ + kBalance * planner.period;
      balance();
    }
    if (planner.prewarm) {
      prewarm();
    }
  }
  if (!requests_.empty() || unfinished_) {
    wake_by(plan_at_);
  } else if (planner.prewarm) {
    // From then on each period: which load is short enough to wait changes.
    wake_by(std::max(plan_at_, planner.calendar.start_of(window_ + 1) - lead()));
  }
}

/// When a window is over, all models' loads in it are known and the next can be forecast.
void ManagerCore::Impl::turn_window() {
  const policy::Calendar& calendar = options_.planner.calendar;
  const std::int64_t window = calendar.window_at(now_);
  if (window == window_) {
    return;
  }
  for (auto& [id, model] : models_) {
    model.demand.advance(now_, calendar);
    model.demand.foresee(window_, window);
    const auto load = model.demand.history().at(window_);
    if (load && !model.config.part_of) {
      act(LoadMeasured{.model = id, .window = window_, .load = *load});
    }
  }
  window_ = window;
}

/// Models with more load than their instances should bear get one more; with less, one of them is
/// spared, so that it is idle when somebody else wants its pages.
void ManagerCore::Impl::scale() {
  for (auto& [id, model] : models_) {
    if (model.foreign() || model.cut() || model.removed || model.demand.in_system() == 0) {
      continue;
    }
    std::vector<policy::InstanceView> running;
    std::int64_t starting = 0;
    for (auto& [device_id, device] : devices_) {
      const auto found = device.instances.find(id);
      if (found == device.instances.end()) {
        continue;
      }
      starting += found->second.stage == InstanceStage::kLoading ? 1 : 0;
      if (found->second.stage == InstanceStage::kServing && !found->second.spare) {
        running.push_back({.id = replica_id(device_id, id),
                           .running = std::ssize(found->second.in_flight),
                           .started = found->second.serving_since});
      }
    }
    const double load = model.demand.load(now_);
    const policy::Scaling scaling =
        policy::choose_scaling(load, model.config.batch, running, starting, now_, {.least = 1});
    for (const policy::ReplicaId spared : scaling.stop) {
      devices_.at(device_of(spared)).instances.at(id).spare = true;
    }
    if (scaling.start > 0) {
      add_replica(id, load);
    }
  }
}

/// One device more for a model with so much load: one that it was spared on, else where that costs
/// others less than the model's own requests would wait.
void ManagerCore::Impl::add_replica(ModelId id, double load) {
  for (auto& [device_id, device] : devices_) {
    const auto here = device.instances.find(id);
    if (here != device.instances.end() && here->second.spare) {
      here->second.spare = false;
      return;
    }
  }
  const std::optional<ReplicaPlace> place = place_for_replica(id);
  if (place && place->lost <= load * to_seconds(place->load_takes)) {
    load_replica(id,
                 *place,
                 LoadReason::kLoad,
                 number(load) + " requests at once on average, where a device should bear " +
                     std::to_string(models_.at(id).config.batch));
  }
}

/// Where the model could get one device more, without anybody's requests having to end.
std::optional<ManagerCore::Impl::ReplicaPlace> ManagerCore::Impl::place_for_replica(
    ModelId id) const {
  const ModelState& model = models_.at(id);
  std::vector<policy::PlacementDevice> views;
  Duration load_takes{};
  for (const auto& [device_id, footprint] : model.config.footprints) {
    const DeviceState& device = devices_.at(device_id);
    if (!device.instances.contains(id) && !dedicated(device)) {
      views.push_back(view(device, id));
      load_takes = std::max(load_takes, load_time(model, device));
    }
  }
  policy::Placement placement = policy::choose_placement(
      views, now_, now_, {.drain_after = options_.drain_after, .load = load_takes});
  if (placement.outcome != policy::PlacementOutcome::kLoad) {
    return std::nullopt;
  }
  ReplicaPlace place{.device = placement.device,
                     .victims = std::move(placement.victims),
                     .load_takes = load_takes};
  for (const ModelId victim : place.victims) {
    place.lost += resident_worth(devices_.at(place.device), victim);
  }
  return place;
}

/// False: something was done with the model or there a moment ago.
bool ManagerCore::Impl::load_replica(ModelId id,
                                     const ReplicaPlace& place,
                                     LoadReason why,
                                     std::string because) {
  const policy::Action action{.kind = policy::ActionKind::kScaleUp,
                              .model = id,
                              .devices = {place.device},
                              .victims = place.victims};
  if (policy::make_diff({&action, 1}, not_before_, now_, options_.planner.period).actions.empty()) {
    return false;
  }
  load(devices_.at(place.device), id, place.victims, why, std::move(because));
  return true;
}

// ---- Moving ----

/// Moves the model whose move relieves KV pressure most. Idle models count for nothing: what they
/// have can be had.
void ManagerCore::Impl::balance() {
  std::vector<policy::KvModel> models;
  std::vector<policy::KvDevice> devices;
  double rate = kLoadRate;
  for (const auto& [device_id, device] : devices_) {
    if (!device.up || device.plan || device.alone || device.claimed || dedicated(device)) {
      continue;
    }
    const auto page = static_cast<std::int64_t>(device.config.page_bytes);
    const std::int64_t workspace = largest_workspace(device);
    devices.push_back({.id = device_id, .bytes = (device.config.pages - workspace) * page});
    rate = device.load_rate > 0 ? std::min(rate, device.load_rate) : rate;
    for (const auto& [id, instance] : device.instances) {
      const ModelState& model = models_.at(id);
      if (!active(model) || model.grouped()) {
        continue;
      }
      std::int64_t instances = 0;
      for (const auto& [other_id, other] : devices_) {
        instances += other.instances.contains(id) ? 1 : 0;
      }
      models.push_back({.model = id,
                        .demand = kv_growth(id, device),
                        .bytes = (pages_of(device, id, workspace) - instance.kv_pages) * page,
                        .at = {device_id},
                        .movable = !model.foreign() && !model.removed && !model.config.pin &&
                                   instances == 1 && instance.stage == InstanceStage::kServing &&
                                   instance.complete});
    }
  }
  for (const policy::KvMove& move :
       policy::choose_kv_moves(models,
                               devices,
                               {.most = 1,
                                .horizon = kDemandLasts * options_.planner.period,
                                .bytes_per_second = rate})) {
    move_model(move);
  }
}

/// Carries out a move off a device where requests wait for memory, unless it costs more than the
/// relief is worth for as long as the demand is expected to last: the time to load, and what those
/// are worth that make way. Pressure alone hurts nobody, and moving takes pages and the link.
void ManagerCore::Impl::move_model(const policy::KvMove& move) {
  if (devices_.at(move.from).short_sequences == 0) {
    return;
  }
  DeviceState& target = devices_.at(move.to);
  const Duration load_takes = load_time(models_.at(move.model), target);
  const policy::PlacementDevice there = view(target, move.model);
  const policy::Placement placement =
      policy::choose_placement({&there, 1}, now_, now_, {.drain_after = options_.drain_after});
  if (placement.outcome != policy::PlacementOutcome::kLoad) {
    return;
  }
  double lost = 0;
  for (const ModelId victim : placement.victims) {
    lost += resident_worth(target, victim);
  }
  const double relief = move.gain * to_seconds(kDemandLasts * options_.planner.period);
  const policy::Action action{.kind = policy::ActionKind::kMigrate,
                              .model = move.model,
                              .devices = {move.from, move.to},
                              .victims = placement.victims};
  if (relief <= to_seconds(load_takes) + lost ||
      policy::make_diff({&action, 1}, not_before_, now_, options_.planner.period).actions.empty()) {
    return;
  }
  devices_.at(move.from).instances.at(move.model).moves_to = move.to;
  load(target,
       move.model,
       placement.victims,
       LoadReason::kPressure,
       "KV pressure falls by " + number(100 * move.gain) + " % against " +
           devices_.at(move.from).config.name);
}

/// Where a model serves elsewhere by now, it is sent nothing more and goes when it is idle. If it
/// did not get there, it stays.
void ManagerCore::Impl::finish_moves() {
  for (auto& [device_id, device] : devices_) {
    for (auto& [id, instance] : device.instances) {
      if (!instance.moves_to) {
        continue;
      }
      const auto& there = devices_.at(*instance.moves_to).instances;
      const auto found = there.find(id);
      const bool comes = found != there.end() && found->second.stage == InstanceStage::kLoading;
      const bool serves = found != there.end() && found->second.stage == InstanceStage::kServing;
      const bool here =
          instance.stage == InstanceStage::kServing || instance.stage == InstanceStage::kDraining;
      if (comes && here) {
        continue;
      }
      if (!serves || !here) {
        instance.moves_to.reset();
        continue;
      }
      instance.spare = true;  // Sent nothing more while the other has room.
      if (instance.in_flight.empty() && instance.stage == InstanceStage::kServing) {
        instance.moves_to.reset();
        evict(device, id, EvictMode::kWhenIdle, EvictionReason::kMoved);
      }
    }
  }
}

}  // namespace heddle::core
