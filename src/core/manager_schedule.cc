#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "core/manager_core_impl.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// From the first configuration on, devices are expected to start within this.
constexpr Duration kDevicesStart = 10s;

DecisionKind decision_of(LoadReason why) {
  switch (why) {
    case LoadReason::kForecast:
      return DecisionKind::kPrewarm;
    case LoadReason::kLoad:
      return DecisionKind::kAdd;
    case LoadReason::kPressure:
      return DecisionKind::kMove;
    default:
      return DecisionKind::kLoad;
  }
}

}  // namespace

void ManagerCore::Impl::schedule() {
  wake_.reset();
  expire();
  unload_unwanted();
  move_cramped();
  tend_groups();
  release_devices();
  advance_plans();
  for (auto& [id, model] : models_) {
    dispatch_waiting(id, model);
  }
  answer_tickets();  // Before another model takes the place of one that has just come.
  advance_claims();
  place_wanted();
  for (auto& [id, device] : devices_) {
    recall(device);
  }
  lend_idle();
  plan_ahead();
  finish_draining();
  set_timer();
}

void ManagerCore::Impl::wake_by(Instant at) {
  if (at > now_ && (!wake_ || at < *wake_)) {
    wake_ = at;
  }
}

/// A timer that is set for too early a time is left to fire: deadlines end with every request, and
/// then there is nothing to set.
void ManagerCore::Impl::set_timer() {
  if (wake_ && (!timer_ || *timer_ <= now_ || *wake_ < *timer_)) {
    act(WakeAt{.at = *wake_});
    timer_ = wake_;
  }
}

void ManagerCore::Impl::expire() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const RequestId id = deadlines_.begin()->second;
    const bool waits = !requests_.at(id).device.has_value();
    fail(id,
         {Code::kDeadlineExceeded,
          waits ? "the deadline passed while the request waited for "
                  "its model"
                : "the deadline passed while the request ran"});
  }
  if (!deadlines_.empty()) {
    wake_by(deadlines_.begin()->first);
  }
}

// ---- Loads and evictions ----

/// Of a group, rank 0 goes first: tend_groups() sees to the others.
void ManagerCore::Impl::evict(DeviceState& device,
                              ModelId model,
                              EvictMode mode,
                              EvictionReason why,
                              std::optional<ModelId> for_model,
                              std::int64_t free_pages) {
  const std::optional<DeviceId> leader = device.instances.at(model).leader;
  if (!leader || device.instances.at(model).apart) {
    evict_here(device, model, mode, why, for_model, free_pages);
    return;
  }
  const Instance* first = leading(device, model);
  if (first != nullptr && first->stage != InstanceStage::kEvicting) {
    evict_here(devices_.at(*leader), whole(model), mode, why, for_model, free_pages);
  }
}

void ManagerCore::Impl::evict_here(DeviceState& device,
                                   ModelId model,
                                   EvictMode mode,
                                   EvictionReason why,
                                   std::optional<ModelId> for_model,
                                   std::int64_t free_pages) {
  Instance& instance = device.instances.at(model);
  HEDDLE_CHECK(mode != EvictMode::kWhenIdle || instance.in_flight.empty());
  instance.stage = InstanceStage::kEvicting;
  instance.evicted_for = why;
  note(DecisionKind::kEvict,
       model,
       device.config.id,
       std::string(name(why)) + "; last used " +
           format_duration(now_ - models_.at(model).last_used) + " ago",
       for_model);
  act(EvictFrom{.device = device.config.id,
                .model = model,
                .basis = {.epoch = device.epoch, .version = device.version},
                .mode = mode,
                .last_used = models_.at(model).last_used,
                .free_pages = free_pages});
}

void ManagerCore::Impl::load(DeviceState& device,
                             ModelId model,
                             const std::vector<ModelId>& victims,
                             LoadReason why,
                             std::string because) {
  const auto here = device.instances.find(model);
  HEDDLE_CHECK(here == device.instances.end() || here->second.stage == InstanceStage::kSuspended);
  note(decision_of(why), model, device.config.id, std::move(because));
  for (const ModelId victim : victims) {
    evict(device, victim, EvictMode::kWhenIdle, EvictionReason::kDisplaced, model);
  }
  begin_load(device, model, why);
}

Instance& ManagerCore::Impl::begin_load(DeviceState& device, ModelId model, LoadReason why) {
  device.undisturbed.reset();
  ModelState& state = models_.at(model);
  Instance& instance = device.instances[model];
  instance.stage = InstanceStage::kLoading;
  instance.why = why;
  instance.load_began = now_;
  instance.from_host = state.host_cached;
  ++state.loads[static_cast<std::size_t>(why)];
  act(LoadOn{.device = device.config.id,
             .model = model,
             .basis = {.epoch = device.epoch, .version = device.version}});
  return instance;
}

std::string ManagerCore::Impl::who_waits(const ModelState& model) {
  const std::size_t waiting = model.waiting.size();
  return waiting == 0   ? "an operator wants it"
         : waiting == 1 ? "a request waits"
                        : std::to_string(waiting) + " requests wait";
}

/// Brings in a model that somebody waits for.
void ManagerCore::Impl::load_wanted(DeviceState& device,
                                    ModelId model,
                                    const std::vector<ModelId>& victims,
                                    std::string_view place) {
  const ModelState& state = models_.at(model);
  const bool operators = state.waiting.empty();
  const policy::Action action{.model = model, .devices = {device.config.id}, .victims = victims};
  not_before_.hold(action, now_ + policy::hold_after(action.kind, options_.planner.period));
  load(device,
       model,
       victims,
       operators ? LoadReason::kOperator : LoadReason::kRequest,
       who_waits(state) + "; " + std::string(place) +
           (victims.empty() ? "" : ": " + names(victims)));
}

// ---- Who goes ----

/// Unloads what an operator wants gone, or the configuration no longer has. A model that is not
/// configured any more takes no requests, not even back from a worker that died.
void ManagerCore::Impl::unload_unwanted() {
  for (auto& [id, model] : models_) {
    if (model.removed) {
      fail_waiting(id,
                   {Code::kNotFound,
                    "model '" + model.config.name +
                        "' was removed from the configuration while the "
                        "request waited for it"});
    }
  }
  for (auto& [device_id, device] : devices_) {
    for (auto& [id, instance] : device.instances) {
      const ModelState& model = models_.at(whole(id));
      if ((!model.removed && model.unloads_asked.empty()) || (instance.leader && !instance.apart)) {
        continue;
      }
      const EvictionReason why =
          model.removed ? EvictionReason::kRemoved : model.unloads_asked.begin()->second;
      // Whatever an engine that is not ours still holds, an operator wants back; one that is merely
      // idle gives up what it can cheaply.
      const bool ends = why != EvictionReason::kIdle;
      const std::int64_t free = ends ? INT64_MAX : pages_of(device, id) / 2;
      if (instance.stage == InstanceStage::kSuspended) {
        if (ends && (instance.in_flight.empty() || model.removed)) {
          evict(device, id, EvictMode::kNow, why, {}, free);
        }
      } else if (instance.stage == InstanceStage::kLoading) {
        evict(device, id, EvictMode::kNow, why, {}, free);
      } else if (instance.stage != InstanceStage::kEvicting) {
        instance.stage = InstanceStage::kDraining;
        if (instance.in_flight.empty()) {
          evict(device, id, EvictMode::kWhenIdle, why, {}, free);
        }
      }
    }
  }
  std::set<ModelId> forgotten;
  for (const auto& [id, model] : models_) {
    if (model.removed && model.requests == 0 && !model.claims && model.unloads_asked.empty() &&
        !model.config.part_of && !somewhere(id, model)) {
      forgotten.insert(id);
    }
  }
  std::erase_if(models_, [&](const auto& entry) {  // Shards are known as long as their rank 0.
    return forgotten.contains(entry.second.config.part_of.value_or(entry.first));
  });
}

/// The most tokens that a request has which waits for the model; 0 when none does.
std::int64_t ManagerCore::Impl::longest_waiting(const ModelState& model) const {
  std::int64_t longest = 0;
  for (const auto& [key, request] : model.waiting) {
    longest = std::max(longest, requests_.at(request).need);
  }
  return longest;
}

/// A model that serves where a request of its own does not fit takes no more and goes when it is
/// idle, to be placed where it fits. If nobody waits for that any more, it stays.
void ManagerCore::Impl::move_cramped() {
  for (auto& [device_id, device] : devices_) {
    for (auto& [id, instance] : device.instances) {
      const bool cramped = longest_waiting(models_.at(id)) > tokens_max(id, device_id);
      if (instance.stage == InstanceStage::kServing) {
        instance.cramped = cramped;
        instance.stage = cramped ? InstanceStage::kDraining : InstanceStage::kServing;
      }
      if (instance.stage != InstanceStage::kDraining || !instance.cramped) {
        continue;
      }
      if (!cramped) {
        instance.stage = InstanceStage::kServing;
        instance.cramped = false;
      } else if (instance.in_flight.empty()) {
        evict(device, id, EvictMode::kWhenIdle, EvictionReason::kCramped);
      }
    }
  }
}

void ManagerCore::Impl::cancel_plan(DeviceState& device) {
  if (!device.plan) {
    return;
  }
  for (const ModelId victim : device.plan->victims) {
    Instance* instance = device.instances.contains(victim) ? leading(device, victim) : nullptr;
    if (instance != nullptr && instance->stage == InstanceStage::kDraining) {
      instance->stage = InstanceStage::kServing;
    }
  }
  device.plan.reset();
}

/// Whether those that are drained have given back so much that the model has room beside them; not
/// where they have to go for another reason.
bool ManagerCore::Impl::fits_beside(const DeviceState& device, const DrainPlan& plan) const {
  const policy::PlacementDevice there = view(device, plan.model);
  return !models_.at(plan.model).foreign() && there.free_pages >= there.need_pages &&
         std::none_of(there.residents.begin(), there.residents.end(), [this](const auto& resident) {
           return resident.displaced || models_.at(resident.model).foreign();
         });
}

/// Carries out what waited for models to become idle, and gives up what nobody wants any more.
void ManagerCore::Impl::advance_plans() {
  for (auto& [device_id, device] : devices_) {
    if (!device.plan) {
      continue;
    }
    if (device.plan->lacks > 0) {
      free_lacking(device);
      continue;
    }
    const auto wanting = models_.find(device.plan->model);
    if (wanting == models_.end() || !wanting->second.wanted()) {
      cancel_plan(device);
      continue;
    }
    const DrainPlan plan = *device.plan;
    if (fits_beside(device, plan)) {
      cancel_plan(device);
      load_wanted(device, plan.model, {}, "those in its way have given back enough");
      continue;
    }
    const bool dissolved = dissolve_victims(device, plan);
    if (!suspend_victims(device, plan) || !dissolved) {
      continue;  // Some run still, or are on their way out.
    }
    std::vector<ModelId> victims;
    const std::int64_t workspace = workspace_of(device, plan.model);
    std::int64_t available = free_pages(device, workspace);
    bool idle = true;
    for (const ModelId victim : plan.victims) {
      const auto found = device.instances.find(victim);
      if (found == device.instances.end() || found->second.stage == InstanceStage::kEvicting ||
          models_.at(victim).foreign()) {
        continue;
      }
      idle = idle && found->second.in_flight.empty();
      available += pages_of(device, victim, workspace);
      victims.push_back(victim);
    }
    if (!idle) {
      continue;
    }
    const policy::PlacementDevice wanted = view(device, plan.model);
    if (available >= wanted.need_pages) {
      device.plan.reset();
      load_wanted(device, plan.model, victims, "those in its way are idle now");
    } else {
      cancel_plan(device);  // Others have grown meanwhile; choose again.
    }
  }
}

// ---- Who comes ----

/// What is loaded for no request yet waits until all devices have started that may hold it, or the
/// one that starts first would get whatever is to be there from the beginning.
bool ManagerCore::Impl::waits_for_devices(const ModelState& model) const {
  return model.waiting.empty() && model.frozen == 0 && now_ < began_ + kDevicesStart &&
         std::any_of(
             model.config.footprints.begin(),
             model.config.footprints.end(),
             [this](const auto& entry) { return devices_.at(entry.first).epoch == WorkerEpoch{}; });
}

/// Finds places for the models that somebody waits for, the longest wait first.
void ManagerCore::Impl::place_wanted() {
  std::vector<std::pair<Instant, ModelId>> wanted;
  for (const auto& [id, model] : models_) {
    const bool under_way = std::any_of(devices_.begin(), devices_.end(), [&](const auto& d) {
      const auto found = d.second.instances.find(id);
      const bool coming =
          found != d.second.instances.end() &&
          ((found->second.stage == InstanceStage::kLoading && !found->second.apart) ||
           (found->second.stage == InstanceStage::kServing && !blocked(d.second, id)) ||
           (found->second.stage == InstanceStage::kEvicting && model.foreign()));
      return coming || (d.second.plan && d.second.plan->model == id);
    });
    if (!model.wanted() || under_way || model.claims) {
      continue;
    }
    if (now_ < model.retry_at) {
      wake_by(model.retry_at);
      continue;
    }
    if (waits_for_devices(model)) {
      wake_by(began_ + kDevicesStart);
      continue;
    }
    Instant since = Instant::max();
    for (const auto& [key, request] : model.waiting) {
      since = std::min(since, requests_.at(request).arrived);
    }
    if (model.frozen > 0) {
      since = std::min(since, frozen_since(id));
    }
    for (const auto& [ticket, at] : model.loads_asked) {
      since = std::min(since, at);
    }
    wanted.emplace_back(since, id);
  }
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [since, id] : wanted) {
    place(id, since);
  }
}

/// Why the model cannot be had, in numbers: what it needs where it needs least, and what there is.
std::string ManagerCore::Impl::too_large(const ModelState& model) const {
  if (model.foreign() && !model.config.footprints.empty()) {
    const ManagerDevice& device = devices_.at(model.config.footprints.begin()->first).config;
    return "model '" + model.config.name + "' needs " + std::to_string(engine_pages(model)) +
           " pages of memory; its device, " + device.name + ", has " + std::to_string(device.pages);
  }
  const policy::Footprint* least = nullptr;
  for (const auto& [id, footprint] : model.config.footprints) {
    if (least == nullptr || policy::pages_to_load(footprint) < policy::pages_to_load(*least)) {
      least = &footprint;
    }
  }
  const ManagerDevice* largest = nullptr;
  for (const auto& [id, device] : devices_) {
    if (largest == nullptr || device.config.pages > largest->pages) {
      largest = &device.config;
    }
  }
  const std::string name = "model '" + model.config.name + "'";
  if (least == nullptr || largest == nullptr) {
    return name + " has no device that may hold it";
  }
  return name + " needs " + policy::describe(*least) + " of memory; the largest device, " +
         largest->name + ", has " + std::to_string(largest->pages);
}

void ManagerCore::Impl::place(ModelId id, Instant waiting_since) {
  if (models_.at(id).cut()) {
    place_group(id, waiting_since);
    return;
  }
  std::vector<policy::PlacementDevice> views;
  const std::int64_t need = longest_waiting(models_.at(id));
  std::int64_t fits_elsewhere = 0;
  Duration load_takes{};
  for (const auto& [device_id, footprint] : models_.at(id).config.footprints) {
    const DeviceState& device = devices_.at(device_id);
    const std::int64_t room = tokens_max(id, device_id);
    if (need > room) {
      fits_elsewhere = std::max(fits_elsewhere, room);
      continue;
    }
    views.push_back(view(device, id));
    if (options_.planner.value) {
      load_takes = std::max(load_takes, load_time(models_.at(id), device));
    }
    wake_by(device.paused_until);
  }
  const policy::Placement placement = policy::choose_placement(
      views, now_, waiting_since, {.drain_after = options_.drain_after, .load = load_takes});
  note_waiting(id, placement);
  switch (placement.outcome) {
    case policy::PlacementOutcome::kServe:
      break;  // Not asked for: it serves nowhere.
    case policy::PlacementOutcome::kLoad: {
      const DeviceState& there = devices_.at(placement.device);
      const bool slow =
          std::any_of(placement.victims.begin(), placement.victims.end(), [&](ModelId victim) {
            return models_.at(victim).foreign() ||
                   (models_.at(victim).grouped() && apart(there, victim) == nullptr);
          });
      if (!slow) {
        load_wanted(devices_.at(placement.device),
                    id,
                    placement.victims,
                    policy::reason_name(placement.reason));
        break;
      }
      drain(devices_.at(placement.device), id, placement.victims);
      advance_plans();  // They are idle; sending them away takes its time all the same.
      break;
    }
    case policy::PlacementOutcome::kDrain:
      drain(devices_.at(placement.device), id, placement.victims);
      advance_plans();  // Engines that are idle, though they stay for a while, need no draining.
      break;
    case policy::PlacementOutcome::kWait:
      if (placement.retry_at) {
        wake_by(*placement.retry_at);
      }
      break;
    case policy::PlacementOutcome::kNever:
      fail_waiting(
          id,
          {Code::kUnavailable,
           too_large(models_.at(id)) + (placement.reason != policy::PlacementReason::kPinned ? ""
                                        : options_.planner.evict
                                            ? "; pinned models leave too few of them"
                                            : "; those that are there, and stay, leave too few")},
          fits_elsewhere);
      if (fits_elsewhere > 0 && models_.at(id).wanted()) {
        place(id, waiting_since);  // The shorter ones.
      }
      break;
  }
}

/// The victims are sent nothing more; advance_plans() goes on when they are idle.
void ManagerCore::Impl::drain(DeviceState& device,
                              ModelId model,
                              const std::vector<ModelId>& victims) {
  device.plan = DrainPlan{.model = model, .victims = victims, .began = now_};
  for (const ModelId victim : victims) {
    Instance& instance = *leading(device, victim);
    if (instance.stage != InstanceStage::kSuspended && !instance.apart) {
      begin_drain(instance, victim, device.config.id, model);
    }
  }
}

/// It is sent nothing more, for `wanted` to come.
void ManagerCore::Impl::begin_drain(Instance& instance,
                                    ModelId model,
                                    DeviceId device,
                                    ModelId wanted) {
  instance.stage = InstanceStage::kDraining;
  const std::size_t left = instance.in_flight.size();
  note(DecisionKind::kDrain,
       model,
       device,
       left == 0 ? "idle, and sent nothing more"
                 : std::to_string(left) + " requests of its own end first",
       wanted);
}

// ---- Who is told ----

void ManagerCore::Impl::answer_tickets() {
  for (auto& [id, model] : models_) {
    bool resident = false;
    bool there = false;
    for (const auto& [device_id, device] : devices_) {
      const auto found = device.instances.find(id);
      if (found != device.instances.end()) {
        const bool idle_is_enough =
            std::all_of(model.unloads_asked.begin(), model.unloads_asked.end(), [](const auto& u) {
              return u.second == EvictionReason::kIdle;
            });
        there = there || found->second.stage != InstanceStage::kSuspended || !idle_is_enough;
        resident = resident || found->second.stage == InstanceStage::kServing;
      }
    }
    if (resident) {
      for (const auto& [ticket, since] : std::exchange(model.loads_asked, {})) {
        act(AdminDone{.ticket = ticket});
      }
    }
    there = there || (model.cut() && somewhere(id, model));
    if (!there && !model.unloads_asked.empty()) {
      for (const auto& [ticket, why] : std::exchange(model.unloads_asked, {})) {
        act(AdminDone{.ticket = ticket});
      }
    }
  }
}

void ManagerCore::Impl::finish_draining() {
  if (!drain_deadline_ || drained_) {
    return;
  }
  if (now_ >= *drain_deadline_) {
    while (!requests_.empty()) {
      fail(requests_.begin()->first,
           {Code::kUnavailable, "the server shut down before the request ended"});
    }
  }
  if (requests_.empty()) {
    drained_ = true;
    act(Drained{});
    return;
  }
  wake_by(*drain_deadline_);
}

}  // namespace heddle::core
