#include "sim/planes/live.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "core/idle.h"

namespace heddle::sim {
namespace {

/// Of the manager's timer; those of devices have the number of their GPU, from 1.
constexpr std::uint64_t kManagerTag = 0;
/// Of the timer by which the gateway looks for idle models.
constexpr std::uint64_t kIdleTag = UINT64_MAX;

}  // namespace

LivePlane::LivePlane(Flags& flags) {
  core::PlannerOptions& planner = options_.planner;
  planner.prewarm = flags.on("prewarm", planner.prewarm);
  planner.replicas = flags.on("replicas", planner.replicas);
  planner.pressure = flags.on("pressure", planner.pressure);
  planner.value = flags.on("value", planner.value);
  planner.calendar = calendar_of(flags);
  options_.queue = static_cast<std::int64_t>(flags.number("queue", 512));
  options_.stages = static_cast<std::int64_t>(flags.number("stages", 4));
  options_.shares = flags.number("shares", 1) != 0;
  preload_ = flags.on("preload", false);
  ttl_ = from_seconds(flags.number("ttl", 0));
  options_.engine_kv = flags.number("kv_gb", options_.engine_kv / 1e9) * 1e9;
  planner.weave = flags.on("weave", false);
}

// ---- The manager ----

/// As a manager begins: it is configured, hosts tell it what they have, and workers come up.
void LivePlane::begin(const Turn& turn) {
  map_ = std::make_unique<LiveMap>(turn.world, options_);
  hear(map_->configuration());
  for (const Host& host : turn.world.hosts()) {
    tell_images(turn, host.id);
  }
  for (const Gpu& gpu : turn.world.gpus()) {
    devices_.emplace_back(*map_, gpu.id);
  }
  for (const Gpu& gpu : turn.world.gpus()) {
    gpu_up(turn, gpu.id);
  }
  tell_peers(turn);
  for (std::size_t i = 0; preload_ && i < turn.world.models().size(); ++i) {
    const bool there = std::ranges::any_of(turn.world.hosts(), [&](const Host& host) {
      return turn.world.cached(host.id, ModelId(i));
    });
    if (there) {
      ticket_ = core::TicketId(ticket_.value() + 1);
      hear(core::AdminLoad{.ticket = ticket_, .model = LiveMap::managed(ModelId(i))});
    }
  }
  if (ttl_ > Duration{}) {
    turn.actions.timer(turn.world.now() + core::kIdleLookInterval, kIdleTag);
  }
}

/// As the gateway does live.
void LivePlane::unload_idle(const Turn& turn) {
  for (const core::ModelStatus& status : manager_.models()) {
    if (core::idle_for(status, ttl_, turn.world.now())) {
      ticket_ = core::TicketId(ticket_.value() + 1);
      hear(core::AdminUnload{
          .ticket = ticket_, .model = status.id, .why = core::EvictionReason::kIdle});
    }
  }
  turn.actions.timer(turn.world.now() + core::kIdleLookInterval, kIdleTag);
}

void LivePlane::step(const Turn& turn, const core::ManagerEvent& event) {
  std::vector<core::ManagerCommand> commands;
  noted_.clear();
  manager_.step(turn.world.now(), event, commands);
  if (listener_) {
    listener_(turn.world.now(), event, commands);
  }
  for (const core::ManagerCommand& command : commands) {
    std::visit([&](const auto& concrete) { perform(turn, concrete); }, command);
  }
}

/// What one notice brings about, until nobody has anything more to say.
void LivePlane::settle(const Turn& turn) {
  do {
    while (!inbox_.empty()) {
      const core::ManagerEvent next = std::move(inbox_.front());
      inbox_.pop_front();
      step(turn, next);
    }
    open(turn);
    open_engines(turn);
    tell_guests(turn);
    for (const DeviceId id : std::exchange(touched_, {})) {
      LiveDevice& there = device(id);
      admit(turn, there);
      if (auto said = there.report_changes(turn.world)) {
        report(there, std::move(*said));
      }
    }
  } while (!inbox_.empty() || !touched_.empty());
  set_timers(turn);
}

void LivePlane::touch(DeviceId id, bool of_residency) {
  LiveDevice& there = device(id);
  touched_.insert(id);
  untimed_.insert(there.gpu());
  there.change(of_residency);
}

// ---- Time ----

void LivePlane::perform(const Turn& /*turn*/, const core::WakeAt& wake) {
  wakes_ = wake.at;
}

/// Timers of the world cannot be taken back: one that comes too early sets the next.
void LivePlane::set_timers(const Turn& turn) {
  if (wakes_ && (!timer_ || *wakes_ < *timer_)) {
    timer_ = wakes_;
    turn.actions.timer(*wakes_, kManagerTag);
  }
  for (const GpuId gpu : std::exchange(untimed_, {})) {
    const LiveDevice& each = devices_[gpu.value()];
    std::optional<Instant> next = each.report_due();
    if (const auto look = each.next_look(turn.world)) {
      next = std::min(next.value_or(*look), *look);
    }
    const auto set = looks_.find(each.id());
    if (next && (set == looks_.end() || *next < set->second)) {
      const Instant at = std::max(*next, turn.world.now() + Duration(1));
      looks_[each.id()] = at;
      turn.actions.timer(at, gpu.value() + 1);
    } else if (each.waits() && set == looks_.end()) {
      untimed_.insert(gpu);  // Until the weights are there, of which the world tells.
    }
  }
}

void LivePlane::tick(const Turn& turn, std::uint64_t tag) {
  if (tag == kIdleTag) {
    unload_idle(turn);
    return;
  }
  if (tag >= kEngineTags) {
    end_way_out(turn, tag);
    return;
  }
  if (tag != kManagerTag) {
    const DeviceId id = map_->device(GpuId(tag - 1));
    const auto set = looks_.find(id);
    if (set != looks_.end() && set->second <= turn.world.now()) {
      looks_.erase(set);
      touched_.insert(id);
      untimed_.insert(GpuId(tag - 1));
    }
    return;
  }
  if (timer_ && *timer_ <= turn.world.now()) {
    timer_.reset();
  }
  if (wakes_ && *wakes_ <= turn.world.now()) {
    wakes_.reset();
    hear(core::Tick{});
  }
}

// ---- What people are told ----

void LivePlane::perform(const Turn& /*turn*/, const core::Decision& decision) {
  if (decision.device) {
    noted_[{*decision.device, decision.model}] = decision;
  }
}

/// A window has ended. What was expected of the next one is asked of the manager then, once.
void LivePlane::perform(const Turn& /*turn*/, const core::LoadMeasured& measured) {
  const ModelId model = map_->part(measured.model).model;
  if (model.value() < expected_.size()) {
    record_.judge(expected_[model.value()], measured.load.mean);
  }
  forecasts_turn_ = true;
}

void LivePlane::judge_forecasts() {
  if (!std::exchange(forecasts_turn_, false)) {
    return;
  }
  expected_.assign(map_->models(), 0);
  for (const core::ModelStatus& status : manager_.models()) {
    const LiveMap::Part& part = map_->part(status.id);
    if (part.first == status.id && !part.stage) {
      expected_[part.model.value()] = status.demand.expected_mean;
    }
  }
}

// ---- Notices ----

void LivePlane::decide(const Notice& notice, const World& world, Actions& actions) {
  const Turn turn{.world = world, .actions = actions};
  switch (notice.kind) {
    case NoticeKind::kStart:
      begin(turn);
      break;
    case NoticeKind::kArrival:
      notice.tag == 0 ? arrived(turn, notice) : came_back(turn, notice);
      break;
    case NoticeKind::kFirstToken: {
      Request& request = requests_.at(number_of(turn, notice.request));
      request.advanced = true;
      touch(*request.device, false);
      break;
    }
    case NoticeKind::kFinished:
      finished(turn, notice);
      break;
    case NoticeKind::kServing:
    case NoticeKind::kWarm:
      served(turn, notice);
      break;
    case NoticeKind::kStarved:
      starved(notice);
      break;
    case NoticeKind::kGone:
      gone(turn, notice);
      break;
    case NoticeKind::kGpuDown:
      die(turn, map_->device(notice.gpu));
      break;
    case NoticeKind::kGpuUp:
      gpu_up(turn, notice.gpu);
      break;
    case NoticeKind::kTimer:
      tick(turn, notice.tag);
      break;
    default:
      return;
  }
  settle(turn);
  judge_forecasts();
}

}  // namespace heddle::sim
