#include "twin/leader_node.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"

namespace heddle::twin {

LeaderNode::LeaderNode(const Setup& setup,
                       const ClusterModels& models,
                       const ClusterTimes& times,
                       Agenda& agenda,
                       Hooks hooks)
    : setup_(setup), models_(models), times_(times), agenda_(agenda), hooks_(std::move(hooks)) {
  for (std::size_t i = 1; i <= setup.hosts; ++i) {
    hosts_[HostId(i)];
  }
  take_over();
  unsettle(times_.first_host);
}

// ---- The core ----

void LeaderNode::hear(const core::ManagerEvent& event) {
  inbox_.push_back(event);
  if (std::exchange(hears_, true)) {
    return;
  }
  while (!inbox_.empty() && alive_) {
    const core::ManagerEvent next = std::move(inbox_.front());
    inbox_.pop_front();
    step(next);
  }
  hears_ = false;
}

void LeaderNode::step(const core::ManagerEvent& event) {
  std::vector<core::ManagerCommand> commands;
  core_.step(agenda_.now(), event, commands);
  if (setup_.checked) {
    core_.check_invariants();
    record_.push_back({.at = agenda_.now(), .event = event, .commands = commands});
  }
  for (const core::ManagerCommand& command : commands) {
    std::visit([this](const auto& concrete) { perform(concrete); }, command);
  }
  ++heard_;
  if (hooks_.on_heard) {
    hooks_.on_heard();
  }
}

/// The last time asked for is the one that counts.
void LeaderNode::perform(const core::WakeAt& command) {
  HEDDLE_CHECK(command.at > agenda_.now());
  wakes_ = command.at;
  ++timers_;
  agenda_.at(command.at, [this, at = command.at] {
    --timers_;
    if (alive_ && wakes_ == at) {
      hear(core::Tick{});
    }
  });
}

// ---- Hosts ----

void LeaderNode::meet(HostId host, const std::shared_ptr<Wire>& wire) {
  hosts_.at(host).wire = wire;
  wire->start(Side::kCaller,
              {.on_message = [this, host](const Message& message) { hear_host(host, message); },
               .on_closed = [this, host] { lose(host); }});
  wire->send(Side::kCaller, Lead{.term = setup_.term});
  wire->send(Side::kCaller, Configuration{.revision = models_.revision, .models = models_.agent});
}

/// Of no use before the host follows: it has the state of another manager, then.
void LeaderNode::tell_host(HostId id, Message message) {
  const Host& host = hosts_.at(id);
  if (host.here) {
    host.wire->send(Side::kCaller, std::move(message));
  }
}

void LeaderNode::hear_host(HostId id, const Message& message) {
  Host& host = hosts_.at(id);
  HEDDLE_CHECK(std::holds_alternative<HostHere>(message) != host.here);
  if (std::holds_alternative<HostHere>(message)) {
    host.here = host.met = true;
  } else if (const auto* offers = std::get_if<Offers>(&message)) {
    take_offers(host, offers->models);
  } else if (std::holds_alternative<HostKnown>(message)) {
    host.known = true;
    settle_if_known();
  } else if (host.offered) {
    hear(std::get<core::ManagerEvent>(message));
  } else {  // Its models have to be known before what it has of them is heard.
    host.early.push_back(std::get<core::ManagerEvent>(message));
  }
}

void LeaderNode::take_offers(Host& host, const core::AgentModels& models) {
  if (!host.offered) {
    unsettle(times_.settling);
  }
  host.offers.clear();
  for (const core::AgentModel& model : models.models) {
    host.offers.insert(model.id);
  }
  take_over();
  if (!std::exchange(host.offered, true)) {
    for (const core::ManagerEvent& event : std::exchange(host.early, {})) {
      hear(event);
    }
  }
  settle_if_known();
}

void LeaderNode::lose(HostId id) {
  Host& host = hosts_.at(id);
  if (host.offered) {
    hear(core::HostLost{.host = id});
  }
  host.wire.reset();
  host.here = host.offered = host.known = false;
  host.early.clear();
  hooks_.on_gone(id);
  if (std::ranges::none_of(hosts_, [](const auto& entry) { return entry.second.here; })) {
    hooks_.on_alone();
  }
}

void LeaderNode::configure(const ClusterModels& models) {
  models_ = models;
  take_over();
  for (auto& [id, host] : hosts_) {
    if (host.wire) {
      host.wire->send(Side::kCaller,
                      Configuration{.revision = models_.revision, .models = models_.agent});
    }
  }
}

/// Makes of the configuration and of what hosts offer what hosts serve, gateways know and the core
/// decides about.
void LeaderNode::take_over() {
  for (const auto& [id, host] : hosts_) {
    core::AgentModels models;
    for (const core::AgentModel& model : models_.agent.models) {
      if (host.offers.contains(model.id)) {
        models.models.push_back(model);
      }
    }
    tell_host(id, core::AgentEvent(models));
  }
  hear(configured());
  tell_served();
}

/// Models are those that some host can serve, and are where one can.
core::Configure LeaderNode::configured() const {
  core::Configure all = models_.manager;
  std::erase_if(all.devices, [&](const core::ManagerDevice& device) {
    return !hosts_.at(host_of(device.id)).met;
  });
  for (core::ManagerModel& model : all.models) {
    const auto away = [&](const auto& entry) {
      return !hosts_.at(host_of(entry.first)).offers.contains(model.id);
    };
    std::erase_if(model.footprints, away);
    std::erase_if(model.fetched, [&](const auto& entry) {
      return !hosts_.at(entry.first).offers.contains(model.id);
    });
    std::erase_if(model.groups, away);
  }
  std::erase_if(all.models,
                [](const core::ManagerModel& model) { return model.footprints.empty(); });
  return all;
}

/// All hosts of its members form it.
void LeaderNode::perform(const core::FormGroup& command) {
  std::set<HostId> hosts;
  for (const core::GroupMember& member : command.members) {
    hosts.insert(host_of(member.device));
  }
  for (const HostId host : hosts) {
    tell_host(host, core::AgentEvent(command));
  }
}

// ---- Gateways ----

void LeaderNode::accept(FrontId id, const std::shared_ptr<Wire>& wire) {
  Front& front = fronts_[id];
  if (front.wire) {
    front.wire->close(Side::kCallee);
  }
  front.told = false;
  front.link = ++links_given_;
  front.wire = wire;
  wire->start(Side::kCallee,
              {.on_message = [this, id](const Message& message) { hear_front(id, message); },
               .on_closed = [this, id] { lose_front(id); }});
}

void LeaderNode::tell_front(FrontId id, const Message& message) {
  const auto found = fronts_.find(id);
  if (found != fronts_.end() && found->second.told) {
    found->second.wire->send(Side::kCallee, message);
  }
}

void LeaderNode::hear_front(FrontId id, const Message& message) {
  const core::ManagerEvent& event = std::get<core::ManagerEvent>(message);
  if (std::holds_alternative<core::FrontState>(event)) {
    fronts_.at(id).told = true;
    if (started_) {  // Until then it goes by what another manager has told it.
      tell_served();
      tell_front(id, served_);
    }
    told_.insert(id);
    hear(event);
    settle_if_known();
  } else if (std::holds_alternative<core::AdminLoad>(event) ||
             std::holds_alternative<core::AdminUnload>(event)) {
    ask(id, event);
  } else {
    HEDDLE_CHECK(fronts_.at(id).told);
    hear(event);
  }
}

/// The core's tickets are its own.
void LeaderNode::ask(FrontId id, core::ManagerEvent admin) {
  const core::TicketId own(++tickets_);
  const auto take = [&](auto& asks) {
    asked_[own] = {.front = id, .link = fronts_.at(id).link, .ticket = asks.ticket};
    asks.ticket = own;
    hear(asks);
  };
  if (auto* load = std::get_if<core::AdminLoad>(&admin)) {
    take(*load);
  } else {
    take(std::get<core::AdminUnload>(admin));
  }
}

void LeaderNode::give_up(ModelId model) {
  hear(core::AdminUnload{
      .ticket = core::TicketId(++tickets_), .model = model, .why = core::EvictionReason::kIdle});
}

void LeaderNode::perform(const core::AdminDone& command) {
  const auto found = asked_.extract(command.ticket);
  if (found.empty()) {
    return;  // Its own.
  }
  const Asked& asked = found.mapped();
  const auto front = fronts_.find(asked.front);
  if (front != fronts_.end() && front->second.link == asked.link) {
    tell_front(asked.front, core::AdminDone{.ticket = asked.ticket, .error = command.error});
  }
}

/// Its requests are given up unless it comes again in time.
void LeaderNode::lose_front(FrontId id) {
  Front& front = fronts_.at(id);
  front.told = false;
  front.wire.reset();
  front.link = ++links_given_;
  agenda_.after(times_.grace, [this, id, link = front.link] {
    const auto found = fronts_.find(id);
    if (alive_ && found != fronts_.end() && found->second.link == link) {
      fronts_.erase(found);
      hear(core::FrontState{.front = id});
    }
  });
}

/// Tells gateways of the models, if that is another thing than they were told last.
void LeaderNode::tell_served() {
  if (!started_) {
    return;
  }
  Served served;
  for (const core::ManagerModel& model : configured().models) {
    if (!model.part_of && !model.cut_of) {
      served.tokens_max[model.id] = core_.tokens_max(model.id);
    }
  }
  if (!(served == served_)) {
    served_ = std::move(served);
    for (const auto& [id, front] : fronts_) {
      tell_front(id, served_);
    }
  }
}

// ---- Deciding nothing before it is known what there is ----

void LeaderNode::unsettle(Duration at_most) {
  hear(core::Settled{.settled = false});
  settled_ = false;
  agenda_.after(at_most, [this, turn = ++unsettled_] {
    if (alive_ && turn == unsettled_ && !settled_) {
      settle();
    }
  });
}

void LeaderNode::settle_if_known() {
  // At first those are waited for that have not linked yet.
  const bool hosts = std::ranges::all_of(hosts_, [this](const auto& entry) {
    const Host& host = entry.second;
    return (started_ && !host.here) || (host.offered && host.known);
  });
  const bool gateways = started_ || told_.size() >= setup_.gateways;
  if (!settled_ && hosts && gateways) {
    settle();
  }
}

void LeaderNode::settle() {
  settled_ = true;
  started_ = true;
  tell_served();
  hear(core::Settled{.settled = true});
}

}  // namespace heddle::twin
