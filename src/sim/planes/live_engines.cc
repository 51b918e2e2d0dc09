#include <algorithm>

#include "base/check.h"
#include "sim/planes/live.h"

namespace heddle::sim {
namespace {

/// Ways out of one engine that timers tell apart.
constexpr std::uint64_t kTurns = 1U << 20U;

}  // namespace

std::optional<ModelId> LivePlane::engine_of(ReplicaId replica) const {
  const auto found = std::ranges::find_if(
      engines_, [&](const auto& entry) { return entry.second.replica == replica; });
  return found == engines_.end() ? std::nullopt : std::optional(found->first);
}

/// What becomes of the engine, as its host tells it live.
void LivePlane::say(ModelId model, core::EngineNews news, Error reason) {
  const EnginePlace& place = *map_->engine(model);
  hear(core::EngineSaid{.device = map_->device(place.gpus.front()),
                        .model = model,
                        .news = news,
                        .held_pages = news == core::EngineNews::kServing ? place.pages : 0,
                        .swap_out = place.swap_out,
                        .swap_in = place.swap_in,
                        .reason = std::move(reason)});
  for (const GpuId gpu : place.gpus) {
    touch(map_->device(gpu), true);
  }
}

// ---- Coming ----

/// Something is on its way out there.
bool LivePlane::frees(const Turn& turn, GpuId gpu) const {
  return std::ranges::any_of(turn.world.gpu(gpu).replicas, [&](ReplicaId id) {
    const auto engine = engine_of(id);
    return turn.world.replica(id)->state == ReplicaPhase::kEvicting ||
           (engine && engines_.at(*engine).leaving);
  });
}

/// Why the engine does not come, by the orders that are there; nothing where it does.
std::optional<Error> LivePlane::engine_refusal(const Turn& turn, const Engine& engine) const {
  if (engine.replica) {
    return Error{Code::kFailedPrecondition, "it is on its way"};
  }
  for (const auto& [id, order] : engine.orders) {
    const LiveDevice& place = device(id);
    if (!place.lives(order.basis.epoch) || order.basis.version != place.version()) {
      return Error{Code::kFailedPrecondition, "stale"};
    }
    std::int64_t free = turn.world.free_pages(place.gpu());
    for (const ReplicaId other : turn.world.gpu(place.gpu()).replicas) {
      const Replica& replica = *turn.world.replica(other);
      free -= replica.state == ReplicaPhase::kWaiting ? start_pages(turn.world, replica) : 0;
    }
    if (free < map_->engine(order.model)->pages && !frees(turn, place.gpu())) {
      return Error{Code::kResourceExhausted, "no room"};
    }
  }
  return std::nullopt;
}

/// An engine on several GPUs comes when the orders for all of them are there.
void LivePlane::bring_in(const Turn& turn, const core::LoadOn& load) {
  Engine& engine = engines_[load.model];
  const std::vector<GpuId>& gpus = map_->engine(load.model)->gpus;
  if (load.device == map_->device(gpus.front())) {
    engine.orders.clear();
  }
  engine.orders[load.device] = load;
  if (engine.orders.size() < gpus.size()) {
    return;
  }
  if (engine.replica && !engine.leaving && turn.world.replica(*engine.replica)->serves()) {
    return say(load.model, core::EngineNews::kServing);
  }
  if (auto refusal = engine_refusal(turn, engine)) {
    return say(load.model, core::EngineNews::kRefused, std::move(*refusal));
  }
  begin_engine(turn, load.model);
}

void LivePlane::begin_engine(const Turn& turn, ModelId model) {
  Engine& engine = engines_.at(model);
  const EnginePlace& place = *map_->engine(model);
  const core::LoadOn& first = engine.orders.at(map_->device(place.gpus.front()));
  const auto noted = noted_.find({first.device, model});
  const bool expected = noted != noted_.end() && noted->second.kind == core::DecisionKind::kPrewarm;
  StartSpec spec = resume(turn.world, map_->part(model).model, place);
  spec.link_class = first.early ? LinkClass::kPrewarm : LinkClass::kActivation;
  engine.leaving = false;
  engine.replica = turn.actions.start(spec, expected ? Reason::kForecast : Reason::kSwap);
  for (const GpuId gpu : place.gpus) {
    touch(map_->device(gpu), true);
  }
}

/// Those that wait for pages of which none come free any more are refused.
void LivePlane::open_engines(const Turn& turn) {
  for (auto& [model, engine] : engines_) {
    const Replica* replica = engine.replica ? turn.world.replica(*engine.replica) : nullptr;
    const bool waits = replica != nullptr && replica->state == ReplicaPhase::kWaiting;
    if (waits && std::ranges::none_of(replica->gpus, [&](GpuId gpu) { return frees(turn, gpu); })) {
      const ReplicaId id = *std::exchange(engine.replica, std::nullopt);
      const bool evicted = std::exchange(engine.leaving, false);
      turn.actions.evict(id, Reason::kPressure, std::nullopt);
      say(model,
          evicted ? core::EngineNews::kSuspended : core::EngineNews::kRefused,
          {Code::kResourceExhausted, "no room"});
    }
  }
}

/// It goes on with what it ran when it was frozen.
void LivePlane::engine_serves(const Turn& turn, ModelId model) {
  Engine& engine = engines_.at(model);
  engine.began = true;
  if (engine.leaving) {
    return;
  }
  for (const RequestId id : std::exchange(engine.frozen, {})) {
    if (requests_.contains(id)) {
      HEDDLE_CHECK(hand_over(turn, engine, id));
    }
  }
  say(model, core::EngineNews::kServing);
}

// ---- Going ----

/// What it runs stays with it. Its memory is free once it was saved.
void LivePlane::take_out(const Turn& turn, const core::EvictFrom& evict) {
  Engine& engine = engines_[evict.model];
  engine.orders.clear();
  const Replica* replica = engine.replica ? turn.world.replica(*engine.replica) : nullptr;
  if (replica == nullptr) {
    return say(evict.model, engine.began ? core::EngineNews::kSuspended : core::EngineNews::kEnded);
  }
  if (std::exchange(engine.leaving, true)) {
    return;  // That is told when it has gone.
  }
  if (!replica->serves()) {
    return turn.actions.evict(*engine.replica, Reason::kSwap, std::nullopt);
  }
  if (replica->load() > 0) {
    turn.actions.stop(*engine.replica, Reason::kSwap);
  }
  ++engine.turn;
  turn.actions.timer(turn.world.now() + map_->engine(evict.model)->swap_out,
                     kEngineTags + evict.model.value() * kTurns + engine.turn % kTurns);
}

void LivePlane::end_way_out(const Turn& turn, std::uint64_t tag) {
  const ModelId model((tag - kEngineTags) / kTurns);
  const Engine& engine = engines_.at(model);
  if (engine.replica && engine.leaving && engine.turn % kTurns == tag % kTurns) {
    turn.actions.evict(*engine.replica, Reason::kSwap, std::nullopt);
  }
}

void LivePlane::engine_gone(ModelId model) {
  Engine& engine = engines_.at(model);
  engine.replica.reset();
  ++engine.turn;
  if (std::exchange(engine.leaving, false)) {
    return say(model, engine.began ? core::EngineNews::kSuspended : core::EngineNews::kEnded);
  }
  say(model, core::EngineNews::kLost, {Code::kUnavailable, "its GPU failed"});
}

// ---- Requests ----

void LivePlane::forward(const Turn& turn, ModelId model, const core::Dispatch& dispatch) {
  Request& request = requests_.at(dispatch.request);
  request.device = dispatch.device;
  request.epoch = dispatch.epoch;
  request.as = model;
  request.advanced = false;
  const Engine& engine = engines_[model];
  if (engine.leaving || !hand_over(turn, engine, dispatch.request)) {
    request.device.reset();
    hear(core::RequestUnanswered{.request = dispatch.request});
  }
}

/// Gives the request to the engine; false where that does not run. One that would not fit there
/// even alone has ended.
bool LivePlane::hand_over(const Turn& turn, const Engine& engine, RequestId id) {
  const LiveId live = requests_.at(id).live;
  if (!engine.replica || !turn.actions.dispatch(live, *engine.replica, Reason::kRunning)) {
    return false;
  }
  if (!turn.world.request(live).live) {
    requests_.erase(id);
    hear(core::RequestCancelled{.request = id});
  }
  return true;
}

}  // namespace heddle::sim
