#include "twin/host_node.h"

#include <algorithm>

namespace heddle::twin {

HostNode::HostNode(const HostSetup& setup,
                   const HostSurroundings& around,
                   const ClusterTimes& times,
                   OnHeard on_heard)
    : around_(around),
      times_(times),
      on_heard_(std::move(on_heard)),
      host_(
          setup,
          around,
          {.on_heard = [this](core::AgentEvent event) { heard(std::move(event)); },
           .on_said = [this](const core::ManagerEvent& event) { said(event); },
           .on_tokens = [this](Life from,
                               const std::vector<core::TokenEvent>& all) { tokens(from, all); }}) {
  heard(core::AgentModels{});
  heard(core::StartAgent{});
}

void HostNode::die() {
  host_.die();
  links_.clear();
}

// ---- Links ----

void HostNode::take_manager(const std::shared_ptr<Wire>& wire, int name) {
  take({.wire = wire, .manager = name});
}

void HostNode::take_gateway(const std::shared_ptr<Wire>& wire, FrontId front) {
  take({.wire = wire, .front = front});
  tell(LinkNo(links_given_), Lives{});
}

void HostNode::take(Link link) {
  const LinkNo no(++links_given_);
  const auto same = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second.front == link.front && entry.second.manager == link.manager;
  });
  if (same != links_.end()) {
    end(same->first);
  }
  const bool manages = !link.front;
  link.wire->start(Side::kCallee,
                   {.on_message =
                        [this, no, manages](const Message& message) {
                          manages ? hear_manager(no, message) : hear_gateway(no, message);
                        },
                    .on_closed = [this, no] { forget(no); }});
  links_[no] = std::move(link);
}

void HostNode::end(LinkNo link) {
  links_.at(link).wire->close(Side::kCallee);
  forget(link);
}

/// The link has ended, and with it what was submitted over it.
void HostNode::forget(LinkNo link) {
  for (const auto& [request, place] : submitted_.end(link)) {
    host_.send(place.device, place.epoch, core::CancelRequest{.request = request});
  }
  if (leader_ == link) {
    leader_.reset();
    heard(core::ForgetOrders{});
  }
  links_.erase(link);
}

void HostNode::tell(LinkNo link, Message message) {
  links_.at(link).wire->send(Side::kCallee, std::move(message));
}

void HostNode::tell_manager(Message message) {
  if (leader_) {
    tell(*leader_, std::move(message));
  }
}

// ---- From managers ----

void HostNode::hear_manager(LinkNo link, const Message& message) {
  if (const auto* lead = std::get_if<Lead>(&message)) {
    follow(link, *lead);
  } else if (leader_ != link) {
    end(link);  // It orders and does not lead.
  } else if (const auto* configuration = std::get_if<Configuration>(&message)) {
    configure(*configuration);
  } else if (const auto* tell = std::get_if<core::TellWorker>(&message)) {
    host_.send(tell->device, tell->epoch, tell->message);
  } else {
    core::AgentEvent event = std::get<core::AgentEvent>(message);
    if (auto* form = std::get_if<core::FormGroup>(&event)) {
      form->group.term = term_;
    }
    heard(std::move(event));
  }
}

void HostNode::follow(LinkNo link, const Lead& lead) {
  const int who = links_.at(link).manager;
  if (lead.term < term_ || (lead.term == term_ && leads_ && *leads_ != who)) {
    end(link);
    return;
  }
  if (leader_) {
    end(*leader_);
  }
  term_ = lead.term;
  leads_ = who;
  leader_ = link;
  tell_manager(HostHere{});
  for (const core::ManagerEvent& event : host_.known()) {
    tell_manager(event);
  }
  tell_manager(HostKnown{});
}

/// Opens what the cluster wants of models, unless that is what is open already. Whoever leads then
/// hears of it.
void HostNode::configure(const Configuration& configuration) {
  if (revision_ == configuration.revision) {
    tell_manager(Offers{.models = offers_});
    return;
  }
  opened_ = std::max(opened_, around_.agenda.now() + around_.faults.some(times_.open));
  around_.agenda.at(opened_, [this, configuration] {
    if (host_.alive()) {
      revision_ = configuration.revision;
      offers_ = configuration.models;
      tell_manager(Offers{.models = offers_});
    }
  });
}

// ---- From gateways ----

void HostNode::hear_gateway(LinkNo link, const Message& message) {
  const auto& tell = std::get<core::TellWorker>(message);
  const Life place{.device = tell.device, .epoch = tell.epoch};
  if (const auto* submit = std::get_if<core::Submit>(&tell.message)) {
    run(link, place, *submit);
  } else if (const auto* cancel = std::get_if<core::CancelRequest>(&tell.message)) {
    if (submitted_.find(link, cancel->request) == place) {
      submitted_.remove(link, cancel->request);
      host_.send(place.device, place.epoch, *cancel);
    }
  } else if (const auto* finish = std::get_if<core::FinishChoice>(&tell.message)) {
    if (submitted_.find(link, finish->request) == place) {
      submitted_.finish(link, *finish);
      host_.send(place.device, place.epoch, *finish);
    }
  }
}

void HostNode::run(LinkNo link, Life place, core::Submit submit) {
  HEDDLE_CHECK(front_of(submit.request) == links_.at(link).front);
  if (const std::optional<Life> before = submitted_.find(link, submit.request)) {
    host_.send(before->device, before->epoch, core::CancelRequest{.request = submit.request});
  }
  if (!host_.memory().lives(place.device, place.epoch)) {
    submitted_.remove(link, submit.request);
    tell(link, LifeEnded{.life = place});
    return;
  }
  submitted_.add(link, place, submit);
  host_.send(place.device, place.epoch, std::move(submit));
}

// ---- What the host says ----

void HostNode::said(const core::ManagerEvent& event) {
  const auto* of_worker = std::get_if<core::WorkerSaid>(&event);
  if (of_worker != nullptr && pass_on(*of_worker)) {
    return;
  }
  if (const auto* down = std::get_if<core::WorkerDown>(&event)) {
    const Life life{.device = down->device, .epoch = down->epoch};
    submitted_.end(life);
    for (const auto& [no, link] : links_) {
      if (link.front) {
        tell(no, LifeEnded{.life = life});
      }
    }
  }
  tell_manager(event);
}

/// What a worker says of a request, to the gateway that has it. False for anything else.
bool HostNode::pass_on(const core::WorkerSaid& said) {
  const auto* returned = std::get_if<core::RequestReturned>(&said.report);
  const auto* failed = std::get_if<core::RequestFailed>(&said.report);
  if (returned == nullptr && failed == nullptr) {
    return false;
  }
  const RequestId request = returned != nullptr ? returned->request : failed->request;
  if (const auto link =
          submitted_.given_up({.device = said.device, .epoch = said.epoch}, request)) {
    tell(*link, core::ManagerEvent(said));
  }
  return true;
}

void HostNode::tokens(Life from, const std::vector<core::TokenEvent>& all) {
  for (auto& [link, share] : submitted_.share_out(from, all)) {
    tell(link,
         core::ManagerEvent(
             core::WorkerSaid{.device = from.device,
                              .epoch = from.epoch,
                              .report = core::TokensProduced{.tokens = std::move(share)}}));
  }
}

}  // namespace heddle::twin
