#include "core/manager/client_events.h"

#include <optional>
#include <string>

#include "core/manager/models.h"
#include "core/manager/pages.h"

namespace heddle::core::manager {
namespace {

/// Why a request cannot be accepted whatever load there is.
std::optional<Error> impossible(const State& state, const RequestArrived& arrived) {
  const auto found = state.models.find(arrived.model);
  if (found == state.models.end() || found->second.removed || found->second.config.part_of) {
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

}  // namespace

void hear(const Parts& core, const RequestArrived& arrived) {
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
