#include "twin/gateway_node.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"

namespace heddle::twin {

GatewayNode::GatewayNode(FrontId front, const ClusterTimes& times, Agenda& agenda, Hooks hooks)
    : times_(times),
      agenda_(agenda),
      hooks_(std::move(hooks)),
      gateway_(agenda, front, [this](const core::ManagerEvent& event) { tell(event); }) {}

// ---- Requests ----

RequestId GatewayNode::ask(const Ask& ask) {
  const RequestId id = gateway_.plan(ask);
  const auto found = served_.tokens_max.find(ask.model);
  if (found == served_.tokens_max.end()) {
    fail(id, {.code = Code::kNotFound, .message = "no model of that id is served"});
  } else {
    gateway_.arrive(id, found->second);
  }
  return id;
}

void GatewayNode::cancel(RequestId id) {
  give_up(id);
  gateway_.cancel(id);
}

void GatewayNode::finish_choice(RequestId id, std::uint32_t choice) {
  const Request& request = gateway_.request(id);
  const bool sent = request.dispatched;
  if (gateway_.finish_choice(id, choice) && sent) {
    send({.device = request.device, .epoch = request.epoch},
         core::FinishChoice{.request = id, .choice = choice});
  }
}

/// The worker that has the request, if one has, is to forget it.
void GatewayNode::give_up(RequestId id) {
  const Request& request = gateway_.request(id);
  if (request.dispatched && request.end == Request::End::kNone) {
    send({.device = request.device, .epoch = request.epoch}, core::CancelRequest{.request = id});
  }
}

void GatewayNode::fail(RequestId id, Error error) {
  if (gateway_.request(id).end == Request::End::kNone) {
    give_up(id);
    gateway_.fail({.request = id, .error = std::move(error)});
  }
}

// ---- The manager ----

/// While it is not linked it hears nothing, as it is told all when it is linked again.
void GatewayNode::tell(const core::ManagerEvent& event) {
  if (manager_) {
    manager_->send(Side::kCaller, event);
  }
}

void GatewayNode::meet_manager(const std::shared_ptr<Wire>& wire) {
  manager_ = wire;
  wire->start(Side::kCaller,
              {.on_message = [this](const Message& message) { hear_manager(message); },
               .on_closed =
                   [this] {
                     manager_.reset();
                     answers_ += std::ssize(std::exchange(waiting_, {}));
                     hooks_.on_manager_gone();
                   }});
  tell(gateway_.tell_all());
}

void GatewayNode::operate(bool load, ModelId model) {
  const core::TicketId ticket(++tickets_);
  if (!manager_) {
    ++answers_;
    return;
  }
  waiting_.insert(ticket);
  if (load) {
    tell(core::AdminLoad{.ticket = ticket, .model = model});
  } else {
    tell(core::AdminUnload{.ticket = ticket, .model = model});
  }
}

void GatewayNode::hear_manager(const Message& message) {
  if (const auto* dispatch = std::get_if<core::Dispatch>(&message)) {
    carry_out(*dispatch);
  } else if (const auto* hold = std::get_if<core::Hold>(&message)) {
    if (gateway_.request(hold->request).end == Request::End::kNone) {
      gateway_.hold(hold->request);
    }
  } else if (const auto* failed = std::get_if<core::FailRequest>(&message)) {
    fail(failed->request, failed->error);
  } else if (const auto* done = std::get_if<core::AdminDone>(&message)) {
    HEDDLE_CHECK(waiting_.erase(done->ticket) == 1);
    ++answers_;
  } else {
    served_ = std::get<Served>(message);
  }
}

void GatewayNode::carry_out(const core::Dispatch& command) {
  if (gateway_.request(command.request).end != Request::End::kNone) {
    // Of which the manager hears next; or it ended while a manager was told of all.
    tell(core::RequestCancelled{.request = command.request});
    return;
  }
  give_up(command.request);
  send({.device = command.device, .epoch = command.epoch}, gateway_.submit(command));
}

// ---- Hosts ----

void GatewayNode::meet_host(HostId id, const std::shared_ptr<Wire>& wire) {
  hosts_[id] = {.wire = wire};
  wire->start(Side::kCaller,
              {.on_message = [this, id](const Message& message) { hear_host(id, message); },
               .on_closed =
                   [this, id] {
                     leave_host(id);
                     hooks_.on_host_gone(id);
                   }});
}

void GatewayNode::leave_host(HostId id) {
  Host& host = hosts_.at(id);
  host.wire.reset();
  if (std::exchange(host.linked, false)) {
    for (const Life& place : std::exchange(host.used, {})) {
      lose(place);
    }
  }
}

void GatewayNode::hear_host(HostId id, const Message& message) {
  Host& host = hosts_.at(id);
  HEDDLE_CHECK(std::holds_alternative<Lives>(message) != host.linked);
  if (std::holds_alternative<Lives>(message)) {
    host.linked = true;
  } else if (const auto* ended = std::get_if<LifeEnded>(&message)) {
    std::erase(host.used, ended->life);
    lose(ended->life);
  } else {
    hear_worker(std::get<core::WorkerSaid>(std::get<core::ManagerEvent>(message)));
  }
}

void GatewayNode::hear_worker(const core::WorkerSaid& said) {
  if (const auto* produced = std::get_if<core::TokensProduced>(&said.report)) {
    for (const core::TokenEvent& token : produced->tokens) {
      if (gateway_.is_at(token.request, said.device, said.epoch)) {
        gateway_.take(token);
      }
    }
    return;
  }
  const auto* returned = std::get_if<core::RequestReturned>(&said.report);
  const RequestId id =
      returned != nullptr ? returned->request : std::get<core::RequestFailed>(said.report).request;
  if (gateway_.is_at(id, said.device, said.epoch)) {
    gateway_.take_back(id);
    tell(said);
  }
}

void GatewayNode::send(Life place, core::WorkerMessage message) {
  const bool submits = std::holds_alternative<core::Submit>(message);
  // While a place is being lost, what comes there is lost with it.
  if (submits && std::ranges::find(lost_, place) != lost_.end()) {
    return;
  }
  const auto found = hosts_.find(host_of(place.device));
  const bool sent = found != hosts_.end() && send_to(found->second, place, message);
  if (submits && !sent) {
    lose_later(place);
  }
}

bool GatewayNode::send_to(Host& host, Life place, const core::WorkerMessage& message) {
  if (!host.linked) {
    return false;
  }
  host.wire->send(
      Side::kCaller,
      core::TellWorker{.device = place.device, .epoch = place.epoch, .message = message});
  if (std::holds_alternative<core::Submit>(message) &&
      std::ranges::find(host.used, place) == host.used.end()) {
    host.used.push_back(place);
  }
  return true;
}

/// Its requests hear of it next, and not within what happens now.
void GatewayNode::lose(Life place) {
  lost_.push_back(place);
  agenda_.after({}, [this] { tell_lost(); });
}

void GatewayNode::lose_later(Life place) {
  lost_.push_back(place);
  if (!std::exchange(resting_, true)) {
    agenda_.after(times_.rest, [this] {
      resting_ = false;
      tell_lost();
    });
  }
}

void GatewayNode::tell_lost() {
  for (const Life& place : std::exchange(lost_, {})) {
    const core::PlaceLost lost = gateway_.lose(place.device, place.epoch);
    if (!lost.requests.empty()) {
      tell(lost);
    }
  }
}

}  // namespace heddle::twin
