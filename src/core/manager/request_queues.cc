#include "core/manager/request_queues.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "core/background.h"
#include "core/manager/index.h"
#include "core/manager/models.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

/// Who was told to give a request up, and did not, is told again after that.
constexpr Duration kYieldsIn = 1s;
/// Nobody waits longer for KV to be fetched.
constexpr Duration kOwed = 5s;

QueueKey key_of(const RequestState& request) {
  return {.priority = request.priority, .order = request.order};
}

}  // namespace

void RequestQueues::arrive(const RequestArrived& arrived, Duration age) {
  HEDDLE_CHECK(!state_.requests.contains(arrived.request));
  ModelState& model = state_.models.at(arrived.model);
  const std::int64_t answer =
      arrived.open_ended ? std::min(arrived.max_tokens, policy::kUsefulTokens) : arrived.max_tokens;
  const bool counts = !is_background(arrived.priority);
  const RequestState request{
      .model = arrived.model,
      .priority = arrived.priority,
      .order = ++arrivals_,
      .tokens = std::max<std::int64_t>(arrived.prompt_tokens + arrived.max_tokens, 1),
      .need = std::max<std::int64_t>(arrived.prompt_tokens + answer, 1),
      .arrived = state_.now - age,
      .due = state_.now - age + (counts ? model.objectives().ttft : kBackgroundTtft),
      .deadline = arrived.patience ? std::optional(state_.now + *arrived.patience) : std::nullopt,
      .adapter = arrived.adapter};
  state_.requests[arrived.request] = request;
  if (counts && model.requests == 0) {
    demand_.count_start(arrived.model);
  }
  ++model.requests;
  if (counts) {
    demand_.arrived(arrived.model, arrived.prompt_tokens + arrived.max_tokens);
  }
  if (request.deadline) {
    state_.deadlines.emplace(*request.deadline, arrived.request);
  }
  wait(arrived.request);
}

/// It is in no other place.
void RequestQueues::wait(RequestId id) {
  const RequestState& request = state_.requests.at(id);
  ModelState& model = state_.models.at(request.model);
  model.waiting.emplace(key_of(request), id);
  model.unsaid += request.held ? 0 : 1;
  reindex(state_, request.model);
}

void RequestQueues::wait_no_more(const RequestState& request) {
  ModelState& model = state_.models.at(request.model);
  model.waiting.erase(key_of(request));
  model.unsaid -= request.held ? 0 : 1;
  reindex(state_, request.model);
}

void RequestQueues::send(RequestId id,
                         DeviceId device_id,
                         std::optional<std::int64_t> room,
                         std::optional<ModelId> as) {
  RequestState& request = state_.requests.at(id);
  request.as = as.value_or(request.model);
  DeviceState& device = state_.devices.at(device_id);
  Instance& instance = device.instances.at(request.as);
  if (room) {
    request.need = request.tokens = std::min(request.tokens, *room);
  }
  wait_no_more(request);
  const bool alone = std::all_of(device.instances.begin(),
                                 device.instances.end(),
                                 [](const auto& entry) { return entry.second.in_flight.empty(); });
  device.undisturbed.reset();
  if (alone && instance.answered && request.arrived == state_.now && device.guests.empty()) {
    device.undisturbed = id;
  }
  request.device = device_id;
  instance.in_flight.insert(id);
  instance.used = true;
  reindex(state_, device_id, request.as);
  owe(id);
  out_.act(Dispatch{.request = id,
                    .device = device_id,
                    .epoch = device.epoch,
                    .tokens = request.tokens,
                    .due = request.due - state_.now,
                    .as = request.as == request.model ? std::nullopt : as,
                    .kv = request.kv});
}

void RequestQueues::hold(RequestId id) {
  RequestState& request = state_.requests.at(id);
  if (!request.held) {
    request.held = true;
    if (!request.device && !request.lost) {
      --state_.models.at(request.model).unsaid;
      reindex(state_, request.model);
    }
    out_.act(Hold{.request = id});
  }
}

void RequestQueues::requeue(RequestId id) {
  leave(id);
  wait(id);
}

void RequestQueues::lose(RequestId id, const LostPlace& place) {
  leave(id);
  state_.requests.at(id).lost = place;
  reindex(state_, id);
}

void RequestQueues::found(RequestId id, DeviceId device, std::optional<ModelId> as) {
  leave(id);
  RequestState& request = state_.requests.at(id);
  request.device = device;
  request.as = as.value_or(request.model);
  Instance& instance = state_.devices.at(device).instances.at(request.as);
  instance.in_flight.insert(id);
  instance.used = true;
  reindex(state_, device, request.as);
}

void RequestQueues::recalled(RequestId id) {
  RequestState& request = state_.requests.at(id);
  const DeviceId from = *request.device;
  const ModelId as = request.as;
  const bool yielded = state_.devices.at(from).instances.at(as).yields.has_value();
  state_.devices.at(from).instances.at(as).yields.reset();
  state_.models.at(request.model).recalled += yielded ? 0 : 1;
  requeue(id);
  for (const ShardPlace& part : block(state_, as, from)) {
    request.kv.push_back({.device = part.device, .model = part.model});
  }
  owe(id);
}

void RequestQueues::yield(DeviceId device_id, ModelId id) {
  DeviceState& device = state_.devices.at(device_id);
  Instance& instance = device.instances.at(id);
  const bool owes = std::ranges::any_of(
      instance.owes, [this](const auto& owed) { return owed.second > state_.now; });
  if (owes || (instance.yields && state_.now < *instance.yields + kYieldsIn)) {
    return;
  }
  instance.yields = state_.now;
  out_.act(TellWorker{.device = device_id,
                      .epoch = device.epoch,
                      .message = RecallRequests{.model = id, .most = 1, .begun = true}});
}

/// Null: it has gone, or its device has.
Instance* RequestQueues::find(const KvSource& source) {
  const auto device = state_.devices.find(source.device);
  if (device == state_.devices.end()) {
    return nullptr;
  }
  const auto found = device->second.instances.find(source.model);
  return found == device->second.instances.end() ? nullptr : &found->second;
}

/// Who has KV of a request keeps it until the request has had it, where it goes on elsewhere. One
/// that has gone meanwhile has none, and then parts of it are of no use.
void RequestQueues::owe(RequestId id) {
  const RequestState& request = state_.requests.at(id);
  const bool all_there = std::ranges::all_of(request.kv, [&](const KvSource& source) {
    const Instance* instance = find(source);
    const bool here = source.device == request.device && source.model == request.as;
    return instance != nullptr && !instance->is<Evicting>() && !here;
  });
  if (!all_there) {
    settle(id);
  }
  for (const KvSource& source : request.kv) {
    find(source)->owes[id] = state_.now + kOwed;
    reindex(state_, source.device, source.model);
  }
}

/// It has had its KV, or will not have it any more.
void RequestQueues::settle(RequestId id) {
  for (const KvSource& source : std::exchange(state_.requests.at(id).kv, {})) {
    if (Instance* instance = find(source)) {
      instance->owes.erase(id);
      reindex(state_, source.device, source.model);
    }
  }
}

void RequestQueues::gather(DeviceId leader, ModelId cut, ModelId whole) {
  DeviceState& device = state_.devices.at(leader);
  Instance& stages = device.instances.at(cut);
  const Instant since = device.instances.at(whole).serving_since;
  if (std::exchange(stages.gathers, since) == since) {
    return;
  }
  out_.note(DecisionKind::kGather,
            whole,
            leader,
            "all of it is here: KV of " + std::to_string(stages.in_flight.size()) +
                " requests in its stages comes, and they follow");
  out_.act(TellWorker{
      .device = leader, .epoch = device.epoch, .message = Gather{.model = cut, .into = whole}});
}

void RequestQueues::moved(DeviceId device, const KvMoved& moved) {
  const auto found = state_.models.find(moved.model);
  if (found == state_.models.end()) {
    return;
  }
  found->second.kv_moved_tokens += moved.tokens;
  found->second.kv_again_tokens += moved.computed;
  if (state_.requests.contains(moved.request)) {
    settle(moved.request);
  }
  out_.note(DecisionKind::kGather,
            moved.model,
            device,
            "a request goes on here: KV of " + std::to_string(moved.tokens) + " tokens has come, " +
                std::to_string(moved.computed) + " are computed again");
}

/// Takes a request out of its queue, off its device, or from what is lost.
void RequestQueues::leave(RequestId id) {
  RequestState& request = state_.requests.at(id);
  settle(id);
  if (request.device) {
    const DeviceId device = *request.device;
    state_.devices.at(device).instances.at(request.as).in_flight.erase(id);
    request.device.reset();
    reindex(state_, device, request.as);
  } else if (std::exchange(request.lost, std::nullopt)) {
    reindex(state_, id);
  } else {
    wait_no_more(request);
  }
  each(state_.index.alone, [&](DeviceId device) {
    if (state_.devices.at(device).alone == id) {
      release(device);
    }
  });
}

void RequestQueues::end(RequestId id, bool served) {
  leave(id);
  const RequestState request = state_.requests.at(id);
  state_.requests.erase(id);
  --state_.models.at(request.model).requests;
  if (!is_background(request.priority)) {
    demand_.left(request.model,
                 served ? std::optional(state_.now - request.arrived) : std::nullopt);
  }
  if (request.deadline) {
    state_.deadlines.erase({*request.deadline, id});
  }
}

void RequestQueues::predict(ModelId id, const Prediction& prediction) {
  const auto& waiting = state_.models.at(id).waiting;
  const auto arrived = [this](const auto& entry) {
    return state_.requests.at(entry.second).arrived;
  };
  const auto oldest = std::ranges::min_element(waiting, {}, arrived);
  if (oldest != waiting.end()) {
    state_.requests.at(oldest->second).predicted = prediction;
  }
}

void RequestQueues::finish(const RequestFinished& finished) {
  const RequestState& request = state_.requests.at(finished.request);
  if (request.predicted && request.predicted->device == request.device && finished.ttft) {
    const Prediction& said = *request.predicted;
    out_.act(PlanMeasured{
        .model = request.model,
        .device = said.device,
        .kind = said.kind,
        .predicted = said.ttft,
        .took = std::max<Duration>(request.arrived + *finished.ttft - said.at, Duration{})});
  }
  if (request.device) {
    DeviceState& device = state_.devices.at(*request.device);
    const bool whole = request.as == request.model;  // Stages are slower.
    if (device.undisturbed == finished.request && whole && finished.ttft) {
      demand_.observe_warm(request.model, *finished.ttft, finished.tpot);
    }
    device.instances.at(request.as).answered = true;
  }
  end(finished.request, true);
}

void RequestQueues::cancel(RequestId id) {
  end(id, false);
}

void RequestQueues::fail(RequestId id, Error error) {
  cancel(id);
  out_.act(FailRequest{.request = id, .error = std::move(error)});
}

void RequestQueues::fail_waiting(ModelId model, const Error& error, std::int64_t longer_than) {
  const std::map<QueueKey, RequestId> waiting = state_.models.at(model).waiting;
  for (const auto& [key, request] : waiting) {
    if (state_.requests.at(request).need > longer_than) {
      fail(request, error);
    }
  }
}

std::int32_t RequestQueues::died(RequestId id) {
  return ++state_.requests.at(id).deaths;
}

void RequestQueues::absolve(RequestId id) {
  state_.requests.at(id).deaths = 0;
}

void RequestQueues::keep_alone(DeviceId device, RequestId id) {
  state_.devices.at(device).alone = id;
  reindex(state_, device);
}

void RequestQueues::release(DeviceId device) {
  state_.devices.at(device).alone.reset();
  reindex(state_, device);
}

void RequestQueues::disturb(DeviceId device) {
  state_.devices.at(device).undisturbed.reset();
}

void RequestQueues::rest(DeviceId device, ModelId model, Instant until) {
  state_.devices.at(device).instances.at(model).resting_until = until;
}

bool RequestQueues::waits_for(ModelId id, std::optional<policy::PlacementReason> reason) {
  ModelState& model = state_.models.at(id);
  return std::exchange(model.waits_for, reason) != reason;
}

}  // namespace heddle::core::manager
