#include "core/manager/client_events.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/worker_lives.h"

namespace heddle::core::manager {
namespace {

/// Why a request cannot be accepted whatever load there is.
std::optional<Error> impossible(const State& state, const RequestArrived& arrived) {
  const auto found = state.models.find(arrived.model);
  if (found == state.models.end() || found->second.removed || found->second.config.part_of ||
      found->second.config.cut_of) {
    return Error{Code::kNotFound,
                 "there is no model with id " + std::to_string(arrived.model.value())};
  }
  if (state.drain_deadline) {
    return Error{Code::kUnavailable, "the server is shutting down"};
  }
  const ModelState& model = found->second;
  const std::int64_t most = tokens_max(state, arrived.model);
  if (most == 0) {
    return Error{Code::kInvalidArgument, too_large(state, model)};
  }
  if (arrived.prompt_tokens + arrived.max_tokens > most) {
    return Error{Code::kInvalidArgument,
                 "a prompt of " + std::to_string(arrived.prompt_tokens) + " tokens and up to " +
                     std::to_string(arrived.max_tokens) + " tokens of answer are more than the " +
                     std::to_string(most) + " that fit in the context of model '" +
                     model.config.name + "' and the memory of its device"};
  }
  return std::nullopt;
}

/// Why a request cannot be accepted now.
std::optional<Error> refusal(const State& state, const RequestArrived& arrived) {
  if (auto error = impossible(state, arrived)) {
    return error;
  }
  const ModelState& model = state.models.at(arrived.model);
  const std::string name = "model '" + model.config.name + "'";
  if (model.requests >= state.options.queue_per_model) {
    return Error{Code::kResourceExhausted,
                 name + " has " + std::to_string(model.requests) +
                     " unfinished requests, the most it may have; try again later"};
  }
  if (state.requests.size() >= state.options.queue_total) {
    return Error{Code::kResourceExhausted,
                 "there are " + std::to_string(state.requests.size()) +
                     " unfinished requests, the most there may be; try again later"};
  }
  if (state.now < model.failed_until && model.failure) {
    return Error{
        Code::kUnavailable,
        name + " could not be loaded and is not tried again yet: " + model.failure->message};
  }
  return std::nullopt;
}

void no_such_model(const Parts& core, TicketId ticket) {
  core.out.act(
      AdminDone{.ticket = ticket, .error = Error{Code::kNotFound, "there is no such model"}});
}

/// The same of a request that was forwarded to an engine. One that is not known there now is lost:
/// its host tells of the engine, or the front hears that it is gone.
void put_at_engine(const Parts& core, RequestId id, DeviceId at) {
  const RequestState& known = core.state.requests.at(id);
  if (known.device == at) {
    return;
  }
  const auto device = core.state.devices.find(at);
  const bool there = device != core.state.devices.end() &&
                     device->second.instances.contains(known.model) &&
                     !device->second.instances.at(known.model).is<Loading>();
  if (there) {
    core.queues.found(id, at);
  } else {
    core.queues.lose(id, {.device = at, .cut = true});
  }
}

/// Puts the request where its front says that it is. On a worker that is not known now it is lost:
/// the worker will be found, or the front hears that it is gone.
void put(const Parts& core, const Unfinished& unfinished) {
  const RequestId id = unfinished.request.request;
  const RequestState& known = core.state.requests.at(id);
  if (!unfinished.device) {
    if (known.device || known.lost) {
      core.queues.requeue(id);
    }
    return;
  }
  const DeviceId at = *unfinished.device;
  if (core.state.models.at(known.model).external()) {
    put_at_engine(core, id, at);
    return;
  }
  if (!alive(core.state, at, unfinished.epoch)) {
    core.queues.lose(id, {.device = at, .epoch = unfinished.epoch, .cut = true});
    return;
  }
  const auto as = known.device == at ? std::nullopt : runs_as(core.state, at, known.model);
  if (as) {
    core.queues.found(id, at, as);
  } else if (known.device != at) {
    core.queues.lose(id, {.device = at, .epoch = unfinished.epoch, .cut = true});
  }
}

void adopt(const Parts& core, const Unfinished& unfinished) {
  const RequestId id = unfinished.request.request;
  if (!core.state.requests.contains(id)) {
    if (auto error = impossible(core.state, unfinished.request)) {
      core.out.act(FailRequest{.request = id, .error = std::move(*error)});
      return;
    }
    core.queues.arrive(unfinished.request, unfinished.age);
    core.tickets.welcome(unfinished.request.model);
  }
  put(core, unfinished);
}

}  // namespace

void hear(const Parts& core, const FrontState& front) {
  std::set<RequestId> unfinished;
  for (const Unfinished& one : front.requests) {
    if (front_of(one.request.request) == front.front) {
      unfinished.insert(one.request.request);
    }
  }
  std::vector<RequestId> ended;
  for (auto at = core.state.requests.lower_bound(first_request(front.front));
       at != core.state.requests.end() && front_of(at->first) == front.front;
       ++at) {
    if (!unfinished.contains(at->first)) {
      ended.push_back(at->first);
    }
  }
  for (const RequestId id : ended) {
    core.queues.cancel(id);
  }
  for (const Unfinished& one : front.requests) {
    if (unfinished.contains(one.request.request)) {
      adopt(core, one);
    }
  }
}

void hear(const Parts& core, const RequestArrived& arrived) {
  if (core.state.requests.contains(arrived.request)) {
    return;  // It was told of already.
  }
  if (auto error = refusal(core.state, arrived)) {
    core.out.act(FailRequest{.request = arrived.request, .error = std::move(*error)});
    return;
  }
  core.queues.arrive(arrived);
  core.tickets.welcome(arrived.model);
}

void hear(const Parts& core, const RequestFinished& finished) {
  if (core.state.requests.contains(finished.request)) {
    core.queues.finish(finished);
  }
}

/// A request may have ended while its client left.
void hear(const Parts& core, const RequestCancelled& cancelled) {
  if (core.state.requests.contains(cancelled.request)) {
    core.queues.cancel(cancelled.request);
  }
}

void hear(const Parts& core, const AdminLoad& load) {
  const auto found = core.state.models.find(load.model);
  if (found == core.state.models.end() || found->second.removed || core.state.drain_deadline) {
    no_such_model(core, load.ticket);
    return;
  }
  core.attempts.forgive(load.model);
  core.tickets.ask(load);
}

void hear(const Parts& core, const AdminUnload& unload) {
  if (!core.state.models.contains(unload.model)) {
    no_such_model(core, unload.ticket);
    return;
  }
  core.tickets.ask(unload);
}

}  // namespace heddle::core::manager
