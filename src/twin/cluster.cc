#include "twin/cluster.h"

#include <algorithm>

#include "base/check.h"
#include "core/idle.h"
#include "ledger/pool_sum.h"
#include "twin/play.h"

namespace heddle::twin {

Cluster::Cluster(const TwinSetup& setup, const FaultPlan& faults)
    : setup_(setup),
      faults_(faults),
      plan_(faults),
      pipes_(setup_.times, setup_.paths, agenda_, faults_) {
  configure(setup.manager, setup.models);
  for (std::size_t i = 1; i <= setup.hosts.size(); ++i) {
    add_host(HostId(i));
  }
  add_leader();
  for (std::size_t i = 1; i <= setup.gateways; ++i) {
    const FrontId front(i);
    gateways_[front] = std::make_unique<GatewayNode>(
        front,
        setup_.times,
        agenda_,
        GatewayNode::Hooks{
            .on_host_gone = [this, front](HostId host) { link_gateway_host(front, host); },
            .on_manager_gone = [this, front] { link_gateway_manager(front); }});
    link_gateway_manager(front);
    for (std::size_t host = 1; host <= setup.hosts.size(); ++host) {
      link_gateway_host(front, HostId(host));
    }
  }
  plan(faults);
  settle();
}

void Cluster::configure(const core::Configure& manager, const std::vector<TwinModel>& models) {
  ++configured_.revision;
  configured_.manager = manager;
  configured_.agent.models.clear();
  for (const TwinModel& model : models) {
    models_[model.model.id] = model;
    configured_.agent.models.push_back(model.model);
  }
  for (const auto& leader : leaders_) {
    if (leader->alive()) {
      leader->configure(configured_);
    }
  }
}

// ---- A trace that goes by ----

/// All devices have a worker, and requests for every model may come.
bool Cluster::all_up() const {
  const std::vector<core::DeviceStatus> all = devices();
  return all.size() == setup_.manager.devices.size() &&
         std::ranges::all_of(all, [](const core::DeviceStatus& device) { return device.up; }) &&
         gateways_.begin()->second->models() == models().size();
}

/// Once, until all are there.
void Cluster::start() {
  if (std::exchange(started_, true)) {
    return;
  }
  while (!all_up()) {
    HEDDLE_CHECK(advance());
  }
  for (const ModelId model : setup_.preload) {
    gateways_.begin()->second->operate(true, model);
  }
  give_up_idle();
}

void Cluster::give_up_idle() {
  for (const core::ModelStatus& status : models()) {
    const Duration ttl = models_.at(status.id).ttl;
    if (ttl > Duration{} && core::idle_for(status, ttl, agenda_.now())) {
      leader()->give_up(status.id);
    }
  }
  agenda_.after(core::kIdleLookInterval, [this] { give_up_idle(); });
}

void Cluster::rest(Instant until) {
  start();
  twin::rest(*this, until);
}

std::vector<Answer> Cluster::run(const std::vector<Ask>& asks,
                                 Duration interval,
                                 const std::function<void(Duration)>& moment) {
  start();
  return play(*this, setup_.paths, asks, interval, moment);
}

std::vector<core::ModelStatus> Cluster::models() const {
  const LeaderNode* const leads = leader();
  return leads == nullptr ? std::vector<core::ModelStatus>{} : leads->core().models();
}

std::vector<core::DeviceStatus> Cluster::devices() const {
  const LeaderNode* const leads = leader();
  std::vector<core::DeviceStatus> all;
  if (leads != nullptr) {
    all = leads->core().devices();
  }
  for (core::DeviceStatus& device : all) {
    const HostNode* const at = host(host_of(device.id));
    const Worker* const worker = at == nullptr ? nullptr : at->host().worker(device.id);
    device.steps = worker == nullptr ? 0 : worker->steps();
  }
  return all;
}

/// Of all hosts together.
ledger::PoolUsage Cluster::host_usage() const {
  ledger::PoolUsage sum;
  for (std::size_t i = 1; i <= setup_.hosts.size(); ++i) {
    if (const HostNode* const at = host(HostId(i)); at != nullptr) {
      ledger::add(at->host().agent().host_usage(), sum);
    }
  }
  return sum;
}

// ---- Time ----

bool Cluster::advance() {
  const bool any = agenda_.advance();
  settle();
  return any;
}

void Cluster::settle() {
  while (!pending_.empty() || !soon_.empty()) {
    for (const auto& what : std::exchange(soon_, {})) {
      what();
    }
    if (!pending_.empty()) {
      const auto [host, event] = std::move(pending_.front());
      pending_.pop_front();
      host->host().step(event);
    }
  }
}

bool Cluster::quiet() const {
  std::size_t timers = 0;
  for (const auto& [id, host] : host_lives_) {
    timers += host->host().timers();
  }
  for (const auto& leader : leaders_) {
    timers += leader->timers();
  }
  return agenda_.size() == timers;
}

bool Cluster::all_ended() const {
  return std::ranges::all_of(gateways_, [](const auto& entry) {
    const Gateway& gateway = entry.second->gateway();
    return gateway.ended() == gateway.requests().size();
  });
}

// ---- Who is there ----

void Cluster::add_leader() {
  const std::uint64_t term = leaders_.size() + 1;
  leaders_.push_back(std::make_unique<LeaderNode>(
      LeaderNode::Setup{.term = term,
                        .hosts = setup_.hosts.size(),
                        .gateways = setup_.gateways,
                        .checked = setup_.checked},
      configured_,
      setup_.times,
      agenda_,
      LeaderNode::Hooks{
          .on_gone = [this, term](HostId host) { link_manager_host(*leaders_.at(term - 1), host); },
          .on_alone =
              [this, term] {
                // Another has been elected meanwhile, and has the hosts.
                if (term < leaders_.size()) {
                  soon_.emplace_back([this, term] { end_leader(*leaders_.at(term - 1), false); });
                }
              },
          .on_heard =
              [this] {
                if (plan_.manager_dies_after && leaders_.size() == 1 &&
                    leaders_[0]->heard() >= *plan_.manager_dies_after) {
                  kill_leader();
                }
              }}));
  for (std::size_t i = 1; i <= setup_.hosts.size(); ++i) {
    link_manager_host(*leaders_.back(), HostId(i));
  }
}

void Cluster::add_host(HostId id) {
  HostSetup setup = setup_.hosts.at(id.value() - 1);
  setup.agent.incarnation =
      1 + static_cast<std::uint64_t>(
              std::ranges::count(host_lives_, id, [](const auto& entry) { return entry.first; }));
  host_lives_.emplace_back(
      id,
      std::make_unique<HostNode>(
          setup,
          HostSurroundings{.models = models_,
                           .paths = setup_.paths,
                           .agenda = agenda_,
                           .faults = faults_,
                           .page_bytes = setup_.manager.devices.front().page_bytes,
                           .checked = setup_.checked,
                           .pipes = pipes_,
                           .find_peer =
                               [this](HostId peer) {
                                 HostNode* const at = host(peer);
                                 return at == nullptr ? nullptr : &at->host().fetcher();
                               }},
          setup_.times,
          [this](HostNode& node, core::AgentEvent event) {
            pending_.emplace_back(&node, std::move(event));
          }));
}

/// Null while it is dead.
HostNode* Cluster::host(HostId id) const {
  const auto last = std::find_if(host_lives_.rbegin(), host_lives_.rend(), [id](const auto& life) {
    return life.first == id;
  });
  return last->second->host().alive() ? last->second.get() : nullptr;
}

/// The last that was elected; null while none leads.
LeaderNode* Cluster::leader() const {
  return leaders_.back()->alive() ? leaders_.back().get() : nullptr;
}

// ---- Links ----

Path& Cluster::path_of(const LeaderNode& leader, HostId host) {
  return manager_hosts_.try_emplace({leader.term(), host}, setup_.times, agenda_, faults_)
      .first->second;
}
Path& Cluster::path_of(const LeaderNode& leader, FrontId front) {
  return manager_gateways_.try_emplace({leader.term(), front}, setup_.times, agenda_, faults_)
      .first->second;
}
Path& Cluster::path_of(FrontId front, HostId host) {
  return gateway_hosts_.try_emplace({front, host}, setup_.times, agenda_, faults_).first->second;
}

void Cluster::link_manager_host(LeaderNode& leader, HostId id) {
  if (!leader.alive()) {
    return;
  }
  agenda_.after(2 * setup_.times.hop + faults_.some(setup_.times.again), [this, &leader, id] {
    Path& path = path_of(leader, id);
    HostNode* const to = host(id);
    if (!leader.alive()) {
      return;
    }
    if (to == nullptr || !path.clear()) {
      link_manager_host(leader, id);
      return;
    }
    const std::shared_ptr<Wire> wire = path.connect();
    wire->start(Side::kCallee,
                {.on_message = [to, wire = std::weak_ptr(wire), name = leader.term() % 2](
                                   const Message& /*greet*/) {
                  to->take_manager(wire.lock(), static_cast<int>(name));
                }});
    wire->send(Side::kCaller, Greet{});
    leader.meet(id, wire);
  });
}

void Cluster::link_gateway_host(FrontId front, HostId id) {
  agenda_.after(2 * setup_.times.hop + faults_.some(setup_.times.again), [this, front, id] {
    Path& path = path_of(front, id);
    HostNode* const to = host(id);
    if (to == nullptr || !path.clear()) {
      link_gateway_host(front, id);
      return;
    }
    const std::shared_ptr<Wire> wire = path.connect();
    wire->start(Side::kCallee,
                {.on_message = [to, wire = std::weak_ptr(wire), front](const Message& /*greet*/) {
                  to->take_gateway(wire.lock(), front);
                }});
    wire->send(Side::kCaller, Greet{});
    gateways_.at(front)->meet_host(id, wire);
  });
}

/// Whoever leads takes it; of two that think they do, either.
void Cluster::link_gateway_manager(FrontId front) {
  agenda_.after(2 * setup_.times.hop + faults_.some(setup_.times.again), [this, front] {
    std::vector<LeaderNode*> leading;
    for (const auto& each : leaders_) {
      if (each->alive() && path_of(*each, front).clear()) {
        leading.push_back(each.get());
      }
    }
    if (leading.empty()) {
      link_gateway_manager(front);
      return;
    }
    LeaderNode* const to = leading.at(faults_.below(leading.size()));
    const std::shared_ptr<Wire> wire = path_of(*to, front).connect();
    wire->start(Side::kCallee,
                {.on_message = [to, wire = std::weak_ptr(wire), front](const Message& /*greet*/) {
                  to->accept(front, wire.lock());
                }});
    wire->send(Side::kCaller, Greet{});
    gateways_.at(front)->meet_manager(wire);
  });
}

// ---- What goes wrong ----

void Cluster::some_time(int times, Duration within, const std::function<void()>& what) {
  for (int i = 0; i < times; ++i) {
    agenda_.after(faults_.some(within), what);
  }
}

void Cluster::plan(const FaultPlan& faults) {
  const Duration within = faults.deaths_within;
  some_time(faults.manager_deaths, within, [this] { kill_leader(); });
  some_time(faults.host_deaths, within, [this] { kill_host(); });
  some_time(faults.cuts, within, [this] { cut(false); });
  some_time(faults.one_way_cuts, within, [this] { cut(true); });
  some_time(faults.resets, within, [this] { reset(); });
  some_time(faults.deaths, within, [this] {
    const HostId id(1 + faults_.below(setup_.hosts.size()));
    HostNode* const at = host(id);
    if (at == nullptr || at->host().lives().empty()) {
      return;
    }
    const auto& lives = at->host().lives();
    const Worker& worker = *lives.at(faults_.below(lives.size()));
    if (faults_.below(4) > 0) {
      at->host().kill(worker.device());
      return;
    }
    pending_.emplace_back(
        at,
        core::WorkerHung{.device = worker.device(),
                         .epoch = worker.epoch(),
                         .reason = {.code = Code::kUnavailable, .message = kHangs}});
  });
}

/// It leads no longer; its system says so to the others, or it is silent.
void Cluster::end_leader(LeaderNode& old, bool silent) {
  if (!old.alive()) {
    return;
  }
  old.die();
  for (std::size_t i = 1; i <= setup_.hosts.size(); ++i) {
    path_of(old, HostId(i)).fall(Side::kCaller, silent);
  }
  for (const auto& [front, gateway] : gateways_) {
    path_of(old, front).fall(Side::kCallee, silent);
  }
}

/// Its process ends, its machine dies, or only the registry takes it for dead.
void Cluster::kill_leader() {
  LeaderNode* const old = leader();
  if (old == nullptr) {
    return;
  }
  const std::uint64_t how = faults_.below(3);
  if (how < 2 || plan_.manager_dies_after) {
    end_leader(*old, how == 1);
    agenda_.after(faults_.some(faults_.away()), [this] { add_leader(); });
  } else {
    soon_.emplace_back([this] { add_leader(); });
  }
}

void Cluster::kill_host() {
  kill(HostId(1 + faults_.below(setup_.hosts.size())));
}

void Cluster::kill(DeviceId device) {
  if (HostNode* const at = host(host_of(device)); at != nullptr) {
    at->host().kill(device);
  }
}

void Cluster::cut(HostId from, HostId to) {
  pipes_.between(from, to).cut(any_side(), faults_.some(faults_.away()));
}

void Cluster::kill(HostId id) {
  HostNode* const old = host(id);
  if (old == nullptr) {
    return;
  }
  const bool silent = faults_.below(2) == 0;
  old->die();
  pipes_.fall(id, silent);
  for (const auto& each : leaders_) {
    path_of(*each, id).fall(Side::kCallee, silent);
  }
  for (const auto& [front, gateway] : gateways_) {
    path_of(front, id).fall(Side::kCallee, silent);
  }
  agenda_.after(faults_.some(faults_.away()), [this, id] { add_host(id); });
}

Path& Cluster::any_path() {
  const HostId host(1 + faults_.below(setup_.hosts.size()));
  const FrontId front(1 + faults_.below(setup_.gateways));
  const bool pipes =
      std::ranges::any_of(models_, [](const auto& entry) { return entry.second.stage.stages > 1; });
  switch (faults_.below(pipes ? 5 : 3)) {
    case 3:
    case 4:
      return pipes_.between(host, HostId(1 + faults_.below(setup_.hosts.size())));
    case 0:
      return path_of(*leaders_.back(), host);
    case 1:
      return path_of(*leaders_.back(), front);
    default:
      return path_of(front, host);
  }
}

Side Cluster::any_side() {
  return faults_.below(2) == 0 ? Side::kCaller : Side::kCallee;
}

void Cluster::cut(bool one_way) {
  Path& path = any_path();
  const Duration length = faults_.some(faults_.away());
  const Side side = any_side();
  path.cut(side, length);
  if (!one_way) {
    path.cut(other(side), length);
  }
}

void Cluster::reset() {
  Path& path = any_path();
  path.reset(any_side());
}

}  // namespace heddle::twin
