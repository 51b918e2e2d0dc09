#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/manager_core_impl.h"

namespace heddle::core {
namespace {

/// Of windows of load that are remembered.
constexpr std::int64_t kDays = 8;
/// Of the planner, over which a model's load is averaged.
constexpr std::int64_t kPeriodsSeen = 10;

policy::ForecastOptions forecast_options(const PlannerOptions& planner) {
  return planner.forecast ? policy::ForecastOptions{}
                          : policy::ForecastOptions{.days = 0, .only = policy::Expert::kLastWindow};
}

}  // namespace

void ManagerCore::Impl::on(const Configure& configure) {
  options_ = configure.options;
  began_ = devices_.empty() ? now_ : began_;
  HEDDLE_CHECK(devices_.empty() || devices_.size() == configure.devices.size());
  for (const ManagerDevice& device : configure.devices) {
    devices_[device.id].config = device;
  }
  std::set<ModelId> configured;
  for (const ManagerModel& model : configure.models) {
    configured.insert(model.id);
    ModelState& state =
        models_
            .try_emplace(
                model.id,
                ModelState{.demand = policy::DemandMeter(now_,
                                                         options_.planner.calendar,
                                                         kDays,
                                                         kPeriodsSeen * options_.planner.period,
                                                         forecast_options(options_.planner))})
            .first->second;
    HEDDLE_CHECK(!state.removed);  // A model that comes back has a new id.
    state.config = model;
  }
  for (auto& [id, model] : models_) {
    model.removed = !configured.contains(id);
  }
}

std::optional<Error> ManagerCore::Impl::refusal(const RequestArrived& arrived) const {
  const auto found = models_.find(arrived.model);
  if (found == models_.end() || found->second.removed || found->second.config.part_of) {
    return Error{Code::kNotFound,
                 "there is no model with id " + std::to_string(arrived.model.value())};
  }
  const ModelState& model = found->second;
  const std::string name = "model '" + model.config.name + "'";
  if (drain_deadline_) {
    return Error{Code::kUnavailable, "the server is shutting down"};
  }
  const std::int64_t most = tokens_max(arrived.model);
  if (most == 0) {
    return Error{Code::kInvalidArgument, too_large(model)};
  }
  if (arrived.prompt_tokens + arrived.max_tokens > most) {
    return Error{Code::kInvalidArgument,
                 "a prompt of " + std::to_string(arrived.prompt_tokens) + " tokens and up to " +
                     std::to_string(arrived.max_tokens) + " tokens of answer are more than the " +
                     std::to_string(most) + " that fit in the context of " + name +
                     " and the memory of its device"};
  }
  if (model.requests >= options_.queue_per_model) {
    return Error{Code::kResourceExhausted,
                 name + " has " + std::to_string(model.requests) +
                     " unfinished requests, the most it may have; try again later"};
  }
  if (requests_.size() >= options_.queue_total) {
    return Error{Code::kResourceExhausted,
                 "there are " + std::to_string(requests_.size()) +
                     " unfinished requests, the most there may be; try again later"};
  }
  if (now_ < model.failed_until && model.failure) {
    return Error{
        Code::kUnavailable,
        name + " could not be loaded and is not tried again yet: " + model.failure->message};
  }
  return std::nullopt;
}

void ManagerCore::Impl::on(const RequestArrived& arrived) {
  HEDDLE_CHECK(!requests_.contains(arrived.request));
  if (auto error = refusal(arrived)) {
    act(FailRequest{.request = arrived.request, .error = std::move(*error)});
    return;
  }
  const std::int64_t answer =
      arrived.open_ended ? std::min(arrived.max_tokens, policy::kUsefulTokens) : arrived.max_tokens;
  requests_[arrived.request] = {
      .model = arrived.model,
      .priority = arrived.priority,
      .order = ++arrivals_,
      .tokens = std::max<std::int64_t>(arrived.prompt_tokens + arrived.max_tokens, 1),
      .need = std::max<std::int64_t>(arrived.prompt_tokens + answer, 1),
      .arrived = now_,
      .due = now_ + models_.at(arrived.model).objectives().ttft,
      .deadline = arrived.deadline};
  ModelState& model = models_.at(arrived.model);
  if (model.requests == 0) {
    note_start(model, arrived.model);
  }
  ++model.requests;
  model.demand.arrived(now_, arrived.prompt_tokens + arrived.max_tokens, options_.planner.calendar);
  model.last_used = model.last_arrival = now_;
  model.sent_away = false;
  if (arrived.deadline) {
    deadlines_.emplace(*arrived.deadline, arrived.request);
  }
  enqueue(arrived.request);
}

/// Puts a request that is nowhere into its model's queue, at the place its age gives it.
void ManagerCore::Impl::enqueue(RequestId id) {
  RequestState& request = requests_.at(id);
  request.device.reset();
  const QueueKey key{.priority = request.priority, .order = request.order};
  models_.at(request.model).waiting.emplace(key, id);
}

/// Takes a request out of its queue, or off its device.
void ManagerCore::Impl::leave(RequestId id) {
  RequestState& request = requests_.at(id);
  if (request.device) {
    DeviceState& device = devices_.at(*request.device);
    device.instances.at(request.model).in_flight.erase(id);
    request.device.reset();
  } else {
    const QueueKey key{.priority = request.priority, .order = request.order};
    models_.at(request.model).waiting.erase(key);
  }
  for (auto& [device_id, device] : devices_) {
    if (device.alone == id) {
      device.alone.reset();
    }
  }
}

/// Forgets a request.
void ManagerCore::Impl::end(RequestId id, bool served) {
  leave(id);
  const RequestState& request = requests_.at(id);
  ModelState& model = models_.at(request.model);
  --model.requests;
  model.last_used = now_;
  model.demand.left(now_,
                    served ? std::optional(now_ - request.arrived) : std::nullopt,
                    options_.planner.calendar);
  if (request.deadline) {
    deadlines_.erase({*request.deadline, id});
  }
  requests_.erase(id);
}

/// Engines that are not ours hear from the gateway that nobody waits any more.
void ManagerCore::Impl::cancel_on_worker(RequestId id) {
  const RequestState& request = requests_.at(id);
  if (request.device && !models_.at(request.model).foreign()) {
    const WorkerEpoch epoch = devices_.at(*request.device).epoch;
    act(TellWorker{
        .device = *request.device, .epoch = epoch, .message = CancelRequest{.request = id}});
  }
}

/// Ends a request with an error, on its worker too.
void ManagerCore::Impl::fail(RequestId id, Error error) {
  cancel_on_worker(id);
  end(id);
  act(FailRequest{.request = id, .error = std::move(error)});
}

/// Fails those that wait and need more than so many tokens; at 0, also who asked for the model.
void ManagerCore::Impl::fail_waiting(ModelId model, const Error& error, std::int64_t longer_than) {
  ModelState& state = models_.at(model);
  const std::map<QueueKey, RequestId> waiting = state.waiting;
  for (const auto& [key, request] : waiting) {
    if (requests_.at(request).need > longer_than) {
      fail(request, error);
    }
  }
  if (longer_than > 0) {
    return;
  }
  for (const auto& [ticket, since] : std::exchange(state.loads_asked, {})) {
    act(AdminDone{.ticket = ticket, .error = error});
  }
}

void ManagerCore::Impl::on(const RequestFinished& finished) {
  const auto found = requests_.find(finished.request);
  if (found == requests_.end()) {
    return;
  }
  const RequestState& request = found->second;
  if (request.device) {
    DeviceState& device = devices_.at(*request.device);
    if (device.undisturbed == finished.request && finished.ttft) {
      models_.at(request.model).warm.observe(*finished.ttft, finished.tpot);
    }
    device.instances.at(request.model).answered = true;
  }
  end(finished.request, true);
}

void ManagerCore::Impl::on(const RequestCancelled& cancelled) {
  if (!requests_.contains(cancelled.request)) {
    return;  // It ended while its client left.
  }
  cancel_on_worker(cancelled.request);
  end(cancelled.request);
}

void ManagerCore::Impl::on(const AdminLoad& admin) {
  const auto found = models_.find(admin.model);
  if (found == models_.end() || found->second.removed || drain_deadline_) {
    act(AdminDone{.ticket = admin.ticket,
                  .error = Error{Code::kNotFound, "there is no such model"}});
    return;
  }
  // An operator who asks again has perhaps put right what failed.
  found->second.failed_until = found->second.retry_at = now_;
  found->second.loads_asked.emplace(admin.ticket, now_);
  found->second.sent_away = false;
}

void ManagerCore::Impl::on(const AdminUnload& admin) {
  const auto found = models_.find(admin.model);
  if (found == models_.end()) {
    act(AdminDone{.ticket = admin.ticket,
                  .error = Error{Code::kNotFound, "there is no such model"}});
    return;
  }
  found->second.unloads_asked.emplace(admin.ticket, admin.why);
  found->second.sent_away = true;
}

void ManagerCore::Impl::on(const DrainManager& drain) {
  drain_deadline_ = drain.deadline;
}

}  // namespace heddle::core
