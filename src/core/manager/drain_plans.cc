#include "core/manager/drain_plans.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/value.h"
#include "core/manager/views.h"

namespace heddle::core::manager {

namespace {

/// All devices that the plan is for, of which this is one.
std::vector<DeviceId> devices_of(const DrainPlan& plan, DeviceId device) {
  return plan.devices.empty() ? std::vector<DeviceId>{device} : plan.devices;
}

/// By estimate, until the victim has left that is drained now.
Duration leaves_in(const State& state, const DeviceState& device, ModelId victim) {
  if (!device.instances.contains(victim)) {
    return {};
  }
  const Instance* leader = leading(state, device, victim);
  const ModelState& model = state.models.at(victim);
  if (leader == nullptr || leader->is<Suspended>()) {
    return {};
  }
  const Duration answers = busy_time(state.models.at(asked(state, victim)), *leader);
  const auto& external = model.config.external;
  return external ? std::min(answers, external->drain.value_or(answers)) + model.swap_out : answers;
}

}  // namespace

void DrainPlans::begin(DeviceId id,
                       ModelId model,
                       const std::vector<ModelId>& victims,
                       std::string instead) {
  DrainPlan plan{.model = model, .began = state_.now, .instead = std::move(instead)};
  const std::vector<ShardPlace> places = block(state_, model, id);
  for (std::size_t i = 0; places.size() > 1 && i < places.size(); ++i) {
    plan.devices.push_back(places[i].device);
  }
  for (const ShardPlace& place : places) {
    DeviceState& device = state_.devices.at(place.device);
    plan.victims.clear();
    std::ranges::copy_if(victims, std::back_inserter(plan.victims), [&](ModelId victim) {
      return device.instances.contains(victim);
    });
    device.plan = plan;
    reindex(state_, place.device);
  }
  for (const ShardPlace& place : places) {
    put_off(place.device);
    drain_victims(place.device);
  }
}

/// When each victim is drained: so that all have left at once, by estimate. What leaves sooner than
/// others on further devices would only hold what nobody can use yet.
void DrainPlans::put_off(DeviceId id) {
  DeviceState& device = state_.devices.at(id);
  Duration last{};
  for (const DeviceId each : devices_of(*device.plan, id)) {
    const DeviceState& there = state_.devices.at(each);
    for (const ModelId victim : there.plan->victims) {
      last = std::max(last, leaves_in(state_, there, victim));
    }
  }
  for (const ModelId victim : device.plan->victims) {
    const Duration spare = last - leaves_in(state_, device, victim);
    if (device.plan->devices.size() > 1 && spare > Duration{}) {
      device.plan->later[victim] = state_.now + spare;
    }
  }
}

/// Sends the victims nothing more, but for those that go on for now.
void DrainPlans::drain_victims(DeviceId id) {
  const DeviceState& device = state_.devices.at(id);
  const DrainPlan plan = *device.plan;
  for (const ModelId victim : plan.victims) {
    if (!device.instances.contains(victim) || plan.later.contains(victim)) {
      continue;
    }
    const Instance& leader = *leading(state_, device, victim);
    if (!leader.is<Suspended>() && !leader.is<Loading>() && !leader.is<Draining>() &&
        !leader.is<Evicting>() && !leader.staged()) {
      residency_.drain_for(id, victim, plan.model, victim);
    }
  }
}

/// Drains those whose time has come, or all once nothing else is waited for.
void DrainPlans::drain_later(const DrainPlan& plan) {
  const auto goes_on = [&](DeviceId id) { return !state_.devices.at(id).plan->later.empty(); };
  if (std::ranges::none_of(plan.devices, goes_on)) {
    return;
  }
  const bool rest_idle = std::ranges::all_of(plan.devices, [&](DeviceId id) {
    const DeviceState& device = state_.devices.at(id);
    return std::ranges::all_of(device.plan->victims, [&](ModelId victim) {
      const bool here = device.instances.contains(victim) && !device.plan->later.contains(victim);
      const Instance* leader = here ? leading(state_, device, victim) : nullptr;
      return leader == nullptr || leader->in_flight.empty();
    });
  });
  for (const DeviceId id : plan.devices) {
    std::erase_if(state_.devices.at(id).plan->later, [&](const auto& victim) {
      out_.wake_by(victim.second);
      return rest_idle || victim.second <= state_.now;
    });
    drain_victims(id);
  }
}

void DrainPlans::cancel(DeviceId id) {
  if (!state_.devices.at(id).plan) {
    return;
  }
  const DrainPlan plan = *state_.devices.at(id).plan;
  for (const DeviceId each : devices_of(plan, id)) {
    const DeviceState& device = state_.devices.at(each);
    for (const ModelId victim : device.plan->victims) {
      if (device.instances.contains(victim)) {
        residency_.resume(each, victim);
      }
    }
  }
  drop(plan, id);
}

/// What was planned is done, or given up.
void DrainPlans::drop(const DrainPlan& plan, DeviceId id) {
  for (const DeviceId each : devices_of(plan, id)) {
    state_.devices.at(each).plan.reset();
    reindex(state_, each);
  }
}

void DrainPlans::advance() {
  each(state_.index.planned, [&](DeviceId id) {
    const DeviceState& device = state_.devices.at(id);
    if (device.plan->lacks > 0) {
      free_lacking(id);
      return;
    }
    if (devices_of(*device.plan, id).front() != id) {
      return;  // The first of its devices goes on with it.
    }
    const auto wanting = state_.models.find(device.plan->model);
    if (wanting == state_.models.end() || !wanting->second.wanted()) {
      cancel(id);
      return;
    }
    advance(device, DrainPlan(*device.plan));
  });
}

void DrainPlans::advance(const DeviceState& device, const DrainPlan& plan) {
  const DeviceId id = device.config.id;
  if (fits_beside(device, plan)) {
    cancel(id);
    loads_.wanted(
        id, plan.model, {}, "those in its way have given back enough", {.instead = plan.instead});
    return;
  }
  drain_later(plan);
  std::vector<ShardPlace> elsewhere;  // That go from further devices.
  std::vector<ModelId> victims;
  bool idle = true;
  bool enough = true;
  for (const DeviceId each : devices_of(plan, id)) {
    const DeviceState& there = state_.devices.at(each);
    Cleared cleared = clear(there, DrainPlan(*there.plan));
    idle = idle && cleared.idle;
    enough = enough && cleared.enough;
    for (const ModelId victim : cleared.victims) {
      if (each == id) {
        victims.push_back(victim);
      } else {
        elsewhere.push_back({.model = victim, .device = each});
      }
    }
  }
  if (!idle) {
    return;  // Some run still, or are on their way out.
  }
  if (!enough) {
    cancel(id);  // Others have grown meanwhile; choose again.
    return;
  }
  drop(plan, id);
  for (const ShardPlace& victim : elsewhere) {
    residency_.evict(
        victim.device, victim.model, EvictMode::kWhenIdle, EvictionReason::kDisplaced, plan.model);
  }
  loads_.wanted(
      id, plan.model, victims, "those in its way are idle now", {.instead = plan.instead});
}

/// Has groups and external engines leave that can, and looks at what is left.
DrainPlans::Cleared DrainPlans::clear(const DeviceState& device, const DrainPlan& plan) {
  if (!plan.later.empty()) {
    return {};
  }
  const bool dissolved = dissolve_victims(device, plan);
  if (!suspend_victims(device.config.id, plan) || !dissolved) {
    return {};
  }
  Cleared cleared{.idle = true};
  const std::int64_t workspace = workspace_of(state_, device, plan.model);
  std::int64_t available = free_pages(state_, device, workspace);
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    const bool goes = found != device.instances.end() && found->second.is<Evicting>();
    cleared.idle = cleared.idle && !(plan.set_aside && goes);
    if (found == device.instances.end() || found->second.is<Evicting>() ||
        state_.models.at(victim).external()) {
      continue;
    }
    cleared.idle = cleared.idle && idle(state_, found->second);
    available += pages_of(state_, device, victim, workspace);
    cleared.victims.push_back(victim);
  }
  if (!cleared.idle && plan.devices.empty()) {
    end_turns(device.config.id, plan);
  }
  cleared.enough = available >= outline(state_, device, plan.model).need_pages;
  return cleared;
}

/// Models that are drained go with what they run, once that has had its time.
void DrainPlans::end_turns(DeviceId id, const DrainPlan& plan) {
  const Duration turn = state_.options.turn;
  if (turn == Duration{} || plan.set_aside) {
    return;
  }
  if (state_.now < plan.began + turn) {
    out_.wake_by(plan.began + turn);
    return;
  }
  DeviceState& device = state_.devices.at(id);
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    if (found == device.instances.end()) {
      continue;  // It has gone, and a reload may have removed the model since.
    }
    const bool ours = !state_.models.at(victim).external() && !state_.models.at(victim).grouped();
    if (ours && found->second.is<Draining>() && !found->second.in_flight.empty()) {
      device.plan->set_aside = true;
      state_.models.at(victim).turn_ended = state_.now;
      residency_.evict(id, victim, EvictMode::kNow, EvictionReason::kTurn, plan.model);
    }
  }
}

/// Whether those that are drained have given back so much that the model has room beside them; not
/// where they have to go for another reason.
bool DrainPlans::fits_beside(const DeviceState& device, const DrainPlan& plan) const {
  const policy::PlacementDevice there = outline(state_, device, plan.model);
  return !state_.models.at(plan.model).external() && there.free_pages >= there.need_pages &&
         std::none_of(there.residents.begin(), there.residents.end(), [&](const auto& resident) {
           return resident.displaced || state_.models.at(resident.model).external();
         });
}

/// Sends the groups away that are in a plan's way. True when nothing of them is left here that
/// would not be gone before what is loaded next.
bool DrainPlans::dissolve_victims(const DeviceState& device, const DrainPlan& plan) {
  const DeviceId id = device.config.id;
  bool left = true;
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    if (found == device.instances.end() || !state_.models.at(victim).grouped() ||
        found->second.staged() || found->second.is<Evicting>()) {
      continue;
    }
    left = false;
    const Instance& leader = *leading(state_, device, victim);
    if (leader.is<Serving>()) {
      residency_.drain(id, victim);  // It could not be evicted as was asked.
    }
    if (leader.is<Draining>() && leader.in_flight.empty()) {
      residency_.evict(id, victim, EvictMode::kWhenIdle, EvictionReason::kDisplaced, plan.model);
    }
  }
  return left;
}

/// Whether an external engine can be suspended for the plan now: idle, or its requests have had
/// their time and stand still with it.
bool DrainPlans::may_leave(const DrainPlan& plan, ModelId victim, const Instance& instance) {
  const std::optional<Duration> drain = state_.models.at(victim).config.external->drain;
  if (instance.in_flight.empty() || !drain) {
    return instance.in_flight.empty();
  }
  out_.wake_by(plan.began + *drain);
  return state_.now >= plan.began + *drain;
}

bool DrainPlans::suspend_victims(DeviceId id, const DrainPlan& plan) {
  const DeviceState& device = state_.devices.at(id);
  // A sharded model has its devices to itself.
  const std::int64_t need = state_.models.at(plan.model).grouped()
                                ? device.config.pages
                                : outline(state_, device, plan.model).need_pages;
  bool left = true;
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    if (found == device.instances.end() || !state_.models.at(victim).external()) {
      continue;
    }
    const Instance& engine = *leading(state_, device, victim);
    const std::int64_t short_by =
        need - free_pages(state_, device, workspace_of(state_, device, plan.model));
    if (engine.is<Suspended>() && (short_by <= 0 || engine.kv_pages == 0)) {
      continue;  // It has left.
    }
    left = false;
    const bool leaves = engine.is<Draining>() || engine.is<Suspended>() ||
                        comes_for_nobody(state_, state_.models.at(victim), device);
    if (leaves && may_leave(plan, victim, engine)) {
      const bool busy = !engine.in_flight.empty();
      const bool for_room = short_by > 0 || !displaces(state_.models.at(plan.model), victim);
      residency_.evict(
          id,
          victim,
          busy ? EvictMode::kFrozen : EvictMode::kWhenIdle,
          EvictionReason::kDisplaced,
          plan.model,
          for_room ? std::clamp<std::int64_t>(short_by, 1, pages_of(state_, device, victim)) : 0);
    }
  }
  return left;
}

namespace {

/// A front that has not told of its requests after this has none any more.
constexpr Duration kFrontsTell = std::chrono::seconds(2);

/// Of a worker that lived before this manager: it lacks pages for a request of which no front has
/// told yet. Or that has just ended, which the worker is about to say.
bool awaits_front(const DeviceState& device, Instant now) {
  const auto wanting = device.instances.find(device.plan->model);
  return device.found && now < device.plan->began + kFrontsTell &&
         wanting != device.instances.end() && wanting->second.in_flight.empty();
}

}  // namespace

void DrainPlans::want_pages(DeviceId id, const DeviceReport& report) {
  DeviceState& device = state_.devices.at(id);
  const auto moves = [](const auto& entry) {
    return entry.second.template is<Loading>() || entry.second.template is<Evicting>();
  };
  const bool moving = std::any_of(device.instances.begin(), device.instances.end(), moves) ||
                      steps_back(state_, device);
  if (moving || !device.instances.contains(report.wanted_by) ||
      (device.plan && device.plan->lacks > 0 && !awaits_front(device, state_.now))) {
    return;  // That changes the device; the worker will say what it lacks then.
  }
  if (state_.models.at(report.wanted_by).config.shares) {
    want_share(id, report);
    return;
  }
  if (free_shares(device, report.wanted_by, report.pages_wanted)) {
    return;
  }
  const std::vector<policy::ResidentView> others = others_at(device, report.wanted_by);
  std::vector<policy::ResidentView> at_once = others;
  std::erase_if(at_once, [&](const policy::ResidentView& resident) {
    return state_.models.at(resident.model).external() &&
           !leading(state_, device, resident.model)->in_flight.empty();
  });
  auto victims = policy::choose_victims(at_once, 0, report.pages_wanted);
  if (!victims) {
    victims = policy::choose_victims(others, 0, report.pages_wanted);
  }
  if (!victims) {
    out_.act(TellWorker{
        .device = id, .epoch = device.epoch, .message = NoPages{.model = report.wanted_by}});
    return;
  }
  cancel(id);
  device.plan = DrainPlan{.model = report.wanted_by,
                          .victims = std::move(*victims),
                          .began = state_.now,
                          .lacks = report.pages_wanted};
  reindex(state_, id);
  free_lacking(id);
}

/// Whether idle groups of the device had so many pages of KV: then they step back.
bool DrainPlans::free_shares(const DeviceState& device, ModelId wanting, std::int64_t lacks) {
  const std::vector<ModelId> idle = idle_shares(state_, device);
  std::int64_t pages = 0;
  for (const ModelId shard : idle) {
    pages += device.instances.at(shard).kv_pages;
  }
  if (pages < lacks) {
    return false;
  }
  for (const ModelId shard : idle) {
    residency_.step_back(device.config.id, shard, whole(state_, wanting));
  }
  return true;
}

/// Of a device the others, as victims that may go at once whatever they do.
std::vector<policy::ResidentView> DrainPlans::others_at(const DeviceState& device,
                                                        ModelId wanting) const {
  std::vector<policy::ResidentView> others = view(state_, device, wanting).residents;
  std::erase_if(others, [&](const policy::ResidentView& resident) {
    const Instance* instance = leading(state_, device, resident.model);
    return instance != nullptr && instance->is<Suspended>() && !instance->in_flight.empty();
  });
  for (policy::ResidentView& other : others) {
    other.in_transition = false;
  }
  return others;
}

/// All devices of the group have to have the pages. External engines would take their time.
void DrainPlans::want_share(DeviceId leader, const DeviceReport& report) {
  const std::vector<ShardPlace> places = block(state_, report.wanted_by, leader);
  std::vector<ShardPlace> goes;
  for (const ShardPlace& place : places) {
    const DeviceState& device = state_.devices.at(place.device);
    const std::int64_t lacks = report.pages_wanted - device.usage.free;
    if (steps_back(state_, device) ||
        std::any_of(device.instances.begin(), device.instances.end(), [](const auto& entry) {
          return entry.second.template is<Loading>() || entry.second.template is<Evicting>();
        })) {
      return;  // That changes the device; then the group is told.
    }
    if (lacks <= 0) {
      continue;
    }
    if (free_shares(device, place.model, lacks)) {
      return;
    }
    std::vector<policy::ResidentView> others = others_at(device, place.model);
    std::erase_if(others, [&](const policy::ResidentView& resident) {
      return state_.models.at(resident.model).external();
    });
    const auto victims = policy::choose_victims(others, 0, lacks);
    if (!victims) {
      const DeviceState& first = state_.devices.at(leader);
      out_.act(TellWorker{
          .device = leader, .epoch = first.epoch, .message = NoPages{.model = report.wanted_by}});
      return;
    }
    for (const ModelId victim : *victims) {
      goes.push_back({.model = victim, .device = place.device});
    }
  }
  for (const ShardPlace& victim : goes) {
    residency_.evict(
        victim.device, victim.model, EvictMode::kNow, EvictionReason::kOutgrown, report.wanted_by);
  }
  for (const ShardPlace& place : places) {
    owe(place.device, report.wanted_by, report.pages_wanted);
  }
  if (goes.empty()) {
    out_.act(fit_share(state_, report.wanted_by, leader, false));
  }
}

void DrainPlans::have_pages(DeviceId id) {
  const DeviceState& device = state_.devices.at(id);
  if (device.plan && device.plan->lacks > 0) {
    cancel(id);
  }
}

/// Evicts the victims that hold what a plan lacks, once the external engines among them are idle:
/// they are sent nothing more.
void DrainPlans::free_lacking(DeviceId id) {
  DeviceState& device = state_.devices.at(id);
  if (awaits_front(device, state_.now)) {
    out_.wake_by(device.plan->began + kFrontsTell);
    return;
  }
  const auto wanting = device.instances.find(device.plan->model);
  bool stale = wanting == device.instances.end() || wanting->second.in_flight.empty();
  bool ready = true;
  for (const ModelId victim : device.plan->victims) {
    const auto found = device.instances.find(victim);
    stale = stale || found == device.instances.end() || found->second.is<Evicting>();
    if (!stale && state_.models.at(victim).external()) {
      const Instance& engine = *leading(state_, device, victim);
      ready = ready && engine.in_flight.empty();
      if (engine.is<Serving>() && !engine.in_flight.empty()) {
        residency_.drain_for(id, victim, device.plan->model, victim);
      }
    }
  }
  if (stale) {
    cancel(id);  // What has changed will have the worker say what it lacks now.
    return;
  }
  if (!ready) {
    return;
  }
  const DrainPlan due = *std::exchange(device.plan, std::nullopt);
  reindex(state_, id);
  owe(id, due.model, due.lacks);
  for (const ModelId victim : due.victims) {
    residency_.evict(id, victim, EvictMode::kNow, EvictionReason::kOutgrown, due.model, due.lacks);
  }
}

void DrainPlans::owe(DeviceId device, ModelId model, std::int64_t pages) {
  out_.wake_by(shortages_.owe(device, model, pages));
}

}  // namespace heddle::core::manager
