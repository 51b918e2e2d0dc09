#include <algorithm>

#include "base/check.h"
#include "sim/planes/live.h"

namespace heddle::sim {
namespace {

Reason reason_of(const Error& error) {
  switch (error.code) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
      return Reason::kTooLarge;
    case Code::kResourceExhausted:
      return Reason::kLate;
    default:
      return Reason::kFault;
  }
}

}  // namespace

// ---- From its front ----

void LivePlane::arrived(const Turn& turn, const Notice& notice) {
  const RequestId id = number_of(turn, notice.request);
  const LiveRequest& request = turn.world.request(notice.request);
  requests_[id] = {.live = notice.request};
  core::RequestArrived arrived{.request = id, .model = LiveMap::managed(request.model)};
  if (!turn.world.model(request.model).external) {  // Tokens of others are theirs to count.
    arrived.prompt_tokens = request.prompt;
    arrived.max_tokens = request.generate;
  }
  hear(arrived);
}

void LivePlane::finished(const Turn& turn, const Notice& notice) {
  const LiveRequest& request = turn.world.request(notice.request);
  const auto found = requests_.find(number_of(turn, notice.request));
  HEDDLE_CHECK(found != requests_.end() && found->second.device);
  core::RequestFinished ended{.request = found->first};
  if (request.first_token) {
    ended.ttft = *request.first_token - request.arrival;
    if (request.generate > 1) {
      ended.tpot = (turn.world.now() - *request.first_token) / (request.generate - 1);
    }
  }
  touch(*found->second.device, false);
  requests_.erase(found);
  hear(ended);
}

/// An engine of the world has given it up: its eviction was ordered, or its worker has died.
void LivePlane::came_back(const Turn& turn, const Notice& notice) {
  find_dead(turn);
  const RequestId id = number_of(turn, notice.request);
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.device) {
    return;  // It has failed meanwhile.
  }
  const Request request = found->second;
  if (const auto engine = engines_.find(request.as); engine != engines_.end()) {
    if (engine->second.replica && engine->second.leaving) {
      engine->second.frozen.push_back(id);
    } else {
      found->second.device.reset();  // The manager hears that its engine is lost.
    }
    return;
  }
  LiveDevice& place = device(*request.device);
  const LiveDevice::Resident* resident =
      place.lives(request.epoch) ? place.resident(request.as) : nullptr;
  if (resident != nullptr && !resident->going) {
    die(turn, place.id());
  }
  if (place.lives(request.epoch)) {
    give_back(place, {.live = request.live, .request = id, .as = request.as}, false);
  } else {
    lose(place.id(), id);
  }
}

/// Its worker no longer has it. The place where it is not is known to the manager.
void LivePlane::give_back(const LiveDevice& from,
                          const LiveDevice::Waiting& waiting,
                          bool recalled) {
  requests_.at(waiting.request).device.reset();
  report(from, core::RequestReturned{.request = waiting.request, .recalled = recalled});
}

/// Its worker has died, which the manager has heard.
void LivePlane::lose(DeviceId from, RequestId id) {
  Request& request = requests_.at(id);
  core::PlaceLost lost{.device = from, .epoch = request.epoch, .requests = {id}};
  if (request.advanced) {
    lost.advanced.push_back(id);
  }
  request.device.reset();
  request.advanced = false;
  hear(std::move(lost));
}

void LivePlane::perform(const Turn& turn, const core::FailRequest& fail) {
  const auto found = requests_.find(fail.request);
  if (found == requests_.end()) {
    return;  // It ended of itself.
  }
  const LiveId live = found->second.live;
  HEDDLE_CHECK(!turn.world.request(live).dispatched);
  requests_.erase(found);
  turn.actions.reject(live, reason_of(fail.error));
}

// ---- At its worker ----

void LivePlane::perform(const Turn& turn, const core::Dispatch& dispatch) {
  LiveDevice& place = device(dispatch.device);
  Request& request = requests_.at(dispatch.request);
  const ModelId model = LiveMap::managed(turn.world.request(request.live).model);
  if (map_->engine(model) != nullptr) {
    return forward(turn, model, dispatch);
  }
  request.device = dispatch.device;
  request.epoch = dispatch.epoch;
  request.as = dispatch.as.value_or(LiveMap::managed(turn.world.request(request.live).model));
  request.advanced = false;
  if (!place.lives(dispatch.epoch)) {
    return lose(place.id(), dispatch.request);  // The manager is about to hear of that death.
  }
  const LiveDevice::Waiting waiting{.live = request.live,
                                    .request = dispatch.request,
                                    .as = request.as,
                                    .due = turn.world.now() + dispatch.due};
  const LiveDevice::Resident* resident = place.resident(request.as);
  if (resident == nullptr || resident->going || !resident->replica) {
    return give_back(place, waiting, false);
  }
  Ordered& ordered = ordered_.at(*resident->replica);
  if (std::exchange(ordered.early, false)) {  // Now somebody waits for it.
    turn.actions.attach(*resident->replica, Reason::kAttach);
  }
  place.submit(waiting);
  touch(place.id(), false);
}

/// Hands requests to engines of the world, as the worker would take them in.
void LivePlane::admit(const Turn& turn, LiveDevice& place) {
  for (const LiveDevice::Waiting& each : place.admit(turn.world)) {
    const LiveDevice::Resident& resident = *place.resident(each.as);
    const Reason reason = each.due < turn.world.now() ? Reason::kLate : Reason::kOnTime;
    if (!turn.actions.dispatch(each.live, *resident.replica, reason)) {
      give_back(place, each, false);
    } else if (!turn.world.request(each.live).live) {  // It would not fit there even alone.
      requests_.erase(each.request);
      hear(core::RequestCancelled{.request = each.request});
    }
    touch(place.id(), false);
  }
}

void LivePlane::starved(const Notice& notice) {
  const auto found = ordered_.find(notice.replica);
  if (found == ordered_.end()) {
    return;
  }
  LiveDevice& place = device(found->second.places.front().first);
  place.stall(notice.replica);
  touch(place.id(), true);
}

/// Requests that wait for memory go back. What has begun stays: the world's engines keep it.
void LivePlane::perform(const Turn& turn, const core::TellWorker& tell) {
  LiveDevice& place = device(tell.device);
  if (!place.lives(tell.epoch)) {
    return;
  }
  if (const auto* recall = std::get_if<core::RecallRequests>(&tell.message)) {
    if (!recall->begun) {
      for (const auto& each : place.take(turn.world, recall->model, recall->most)) {
        give_back(place, each, true);
      }
    }
    touch(place.id(), false);
  } else if (const auto* back = std::get_if<core::StepBack>(&tell.message)) {
    // Its engines keep no KV for nobody: nothing is left to give up.
    report(place, core::SteppedBack{.model = back->model});
  } else if (std::holds_alternative<core::NoPages>(tell.message)) {
    do_without(turn, place);
  }
}

/// Nobody has pages for the oldest request of the engine that stalls: it fails. The world takes it
/// out of the engine only with all others, which wait again, and with the engine's weights.
void LivePlane::do_without(const Turn& turn, LiveDevice& place) {
  for (auto& [model, resident] : place.residents()) {
    const Replica* replica = resident.replica ? turn.world.replica(*resident.replica) : nullptr;
    if (replica == nullptr || resident.going || !replica->engine || !replica->engine->starved()) {
      continue;
    }
    const std::vector<Sequence>& running = replica->engine->running_sequences();
    const std::vector<Sequence>& all =
        running.empty() ? replica->engine->waiting_sequences() : running;
    const auto oldest = std::ranges::min_element(
        all, {}, [](const Sequence& each) { return std::pair(each.arrived, each.id); });
    if (oldest == all.end()) {
      continue;
    }
    const RequestId id = number_of(turn, LiveId(oldest->id.value()));
    report(place,
           core::RequestFailed{.request = id,
                               .error = {Code::kResourceExhausted, "no memory for its KV"}});
    resident.going = true;
    for (const LiveDevice::Waiting& each : place.take(turn.world, model)) {
      give_back(place, each, false);
    }
    turn.actions.evict(*resident.replica, Reason::kTooLarge, std::nullopt);
    touch(place.id(), true);
    return;
  }
}

}  // namespace heddle::sim
