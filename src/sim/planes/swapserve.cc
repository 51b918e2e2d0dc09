#include "sim/planes/swapserve.h"

#include <algorithm>

namespace heddle::sim {
namespace {

/// Between two looks for whom to swap out, where nothing else happens.
constexpr Duration kLeastWait = std::chrono::milliseconds(100);
constexpr std::uint64_t kLookAgain = UINT64_MAX;
constexpr std::uint64_t kTurns = 1U << 20U;

}  // namespace

SwapServePlane::SwapServePlane(Flags& flags) : kv_bytes_(flags.number("kv_gb", 8) * 1e9) {
  const bool paper = flags.on("paper", false);
  options_.residence_swaps = static_cast<std::int64_t>(flags.number("residence", paper ? 0 : 3));
  options_.variant =
      paper ? policy::PreemptionVariant::kPaper : policy::PreemptionVariant::kLeastCost;
}

/// Engines are assigned one after the other where the least is assigned yet; none runs.
void SwapServePlane::begin(const World& world, Actions& /*actions*/) {
  std::vector<ModelId> models;
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    models.emplace_back(i);
  }
  for (EnginePlace& place : place_engines(world, models, kv_bytes_)) {
    engines_.push_back({.at = std::move(place)});
  }
  std::vector<policy::DevicePages> capacity;
  for (const Gpu& gpu : world.gpus()) {
    capacity.push_back({.device = gpu.id, .pages = gpu.pages});
  }
  reservations_.emplace(capacity, kEngineMarginPercent);
}

Reservation SwapServePlane::reservation_of(ModelId model) const {
  const Swappable& engine = engines_[model.value()];
  Reservation reservation{.id = engine.reservation, .model = model};
  for (const GpuId gpu : engine.at.gpus) {
    reservation.pages.push_back({.device = gpu, .pages = engine.at.pages});
  }
  std::sort(reservation.pages.begin(), reservation.pages.end(), [](const auto& a, const auto& b) {
    return a.device < b.device;
  });
  return reservation;
}

bool SwapServePlane::up(const World& world, ModelId model) const {
  const std::vector<GpuId>& gpus = engines_[model.value()].at.gpus;
  return std::all_of(gpus.begin(), gpus.end(), [&](GpuId gpu) { return world.gpu(gpu).up; });
}

void SwapServePlane::ask(const World& world, Actions& actions, ModelId model) {
  Swappable& engine = engines_[model.value()];
  if (engine.state != State::kSuspended || queues_.empty(model) || !up(world, model)) {
    return;
  }
  engine.state = State::kAsked;
  engine.reservation = ReservationId(++asked_);
  asked_by_[engine.reservation] = model;
  reservations_->ask(reservation_of(model));
  step(world, actions);
}

/// Grants what can be granted, and frees room for who is next.
void SwapServePlane::step(const World& world, Actions& actions) {
  for (const ReservationId id : reservations_->grant(world.now())) {
    swap_in(world, actions, asked_by_.at(id));
  }
  make_room(world, actions);
}

void SwapServePlane::swap_in(const World& world, Actions& actions, ModelId model) {
  Swappable& engine = engines_[model.value()];
  engine.state = State::kSwappingIn;
  ++engine.turn;
  engine.replica = actions.start(resume(world, model, engine.at), Reason::kSwap);
}

std::vector<policy::SwapCandidate> SwapServePlane::candidates(const World& world) const {
  std::vector<policy::SwapCandidate> all;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    const Swappable& engine = engines_[i];
    if (engine.state == State::kSuspended || engine.state == State::kAsked) {
      continue;
    }
    const Replica* replica = world.replica(engine.replica);
    const bool busy = replica != nullptr && replica->load() > 0;
    all.push_back({.model = ModelId(i),
                   .holds = reservation_of(ModelId(i)).pages,
                   .queue = static_cast<std::int64_t>(queues_.size(ModelId(i)) +
                                                      (busy ? replica->load() : 0)),
                   .oldest_wait = busy ? world.now() - replica->engine->oldest() : Duration{},
                   .last_used = engine.last_used,
                   .running_since = engine.running_since,
                   .swap_out = engine.at.swap_out,
                   .swap_in = engine.at.swap_in,
                   .in_transition = engine.state != State::kRunning});
  }
  return all;
}

void SwapServePlane::make_room(const World& world, Actions& actions) {
  const std::optional<ReservationId> head = reservations_->head();
  if (!head) {
    return;
  }
  const ModelId model = asked_by_.at(*head);
  // What is on its way out already is as good as free.
  std::vector<policy::DevicePages> missing = reservations_->missing(*head);
  const auto leaves = [&](const Swappable& engine) {
    return engine.state == State::kDraining || engine.state == State::kSwappingOut;
  };
  for (const Swappable& engine : engines_) {
    for (policy::DevicePages& each : missing) {
      const bool here = std::find(engine.at.gpus.begin(), engine.at.gpus.end(), each.device) !=
                        engine.at.gpus.end();
      each.pages -= here && leaves(engine) ? engine.at.pages : 0;
    }
  }
  std::erase_if(missing, [](const policy::DevicePages& each) { return each.pages <= 0; });
  if (missing.empty() || queues_.empty(model)) {
    return;
  }
  const LiveRequest& oldest = world.request(queues_.front(model));
  const Duration slack =
      std::max(Duration{}, oldest.arrival + world.model(model).slo_ttft - world.now());
  const policy::Preemption choice =
      policy::choose_swap_victims(candidates(world), missing, world.now(), slack, options_);
  if (choice.outcome == policy::PreemptionOutcome::kWait && choice.retry_at) {
    const Instant again = std::max(*choice.retry_at, world.now() + kLeastWait);
    if (look_again_ <= world.now() || again < look_again_) {
      look_again_ = again;
      actions.timer(again, kLookAgain);
    }
  }
  for (const ModelId victim : choice.victims) {
    Swappable& engine = engines_[victim.value()];
    engine.state = State::kDraining;
    actions.timer(world.now() + choice.drain, victim.value() * kTurns + engine.turn % kTurns);
    actions.drain(engine.replica, Reason::kSwap);
  }
}

/// The end of an engine's residence, however it came.
void SwapServePlane::gone(const World& world, Actions& actions, ModelId model) {
  Swappable& engine = engines_[model.value()];
  reservations_->release(engine.reservation);
  asked_by_.erase(engine.reservation);
  engine.state = State::kSuspended;
  ++engine.turn;
  ask(world, actions, model);
  step(world, actions);
}

void SwapServePlane::decide(const Notice& notice, const World& world, Actions& actions) {
  Swappable* engine = notice.kind == NoticeKind::kStart || notice.kind == NoticeKind::kTimer ||
                              notice.kind == NoticeKind::kGpuDown ||
                              notice.kind == NoticeKind::kGpuUp
                          ? nullptr
                          : &engines_[notice.model.value()];
  switch (notice.kind) {
    case NoticeKind::kStart:
      return begin(world, actions);
    case NoticeKind::kArrival:
      if (engine->at.gpus.empty()) {
        return actions.reject(notice.request, Reason::kTooLarge);
      }
      queues_.push(world, notice.request);
      engine->last_used = world.now();
      if (engine->state == State::kSuspended) {
        return ask(world, actions, notice.model);
      }
      break;
    case NoticeKind::kServing:
      engine->state = State::kRunning;
      engine->running_since = world.now();
      reservations_->set_used(engine->reservation);
      break;
    case NoticeKind::kFinished:
      engine->last_used = world.now();
      make_room(world, actions);
      break;
    case NoticeKind::kDrained:  // Its GPU state is saved; then its pages are free.
      engine->state = State::kSwappingOut;
      ++engine->turn;  // It is not to be stopped any more.
      return actions.timer(world.now() + engine->at.swap_out,
                           notice.model.value() * kTurns + engine->turn % kTurns);
    case NoticeKind::kTimer: {
      if (notice.tag == kLookAgain && world.now() < look_again_) {
        return;  // An earlier look was set since, and then this one again.
      }
      if (notice.tag == kLookAgain) {
        return make_room(world, actions);
      }
      const ModelId model(notice.tag / kTurns);
      Swappable& due = engines_[model.value()];
      if (due.turn % kTurns != notice.tag % kTurns) {
        return;
      }
      if (due.state == State::kDraining) {
        actions.stop(due.replica, Reason::kSwap);
      } else if (due.state == State::kSwappingOut) {
        actions.evict(due.replica, Reason::kSwap, std::nullopt);
      }
      return;
    }
    case NoticeKind::kGone:
      return gone(world, actions, notice.model);
    case NoticeKind::kGpuUp:
      for (std::size_t i = 0; i < engines_.size(); ++i) {
        ask(world, actions, ModelId(i));
      }
      return;
    default:
      return;
  }
  if (engine->state == State::kRunning) {
    dispatch_waiting(
        world, actions, queues_, notice.model, 4 * world.model(notice.model).max_sequences);
  }
}

}  // namespace heddle::sim
