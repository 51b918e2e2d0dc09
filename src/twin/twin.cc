#include "twin/twin.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "core/idle.h"

namespace heddle::twin {

namespace {

std::optional<Contents> contents_of(const TwinSetup& setup, std::uint64_t pages) {
  return setup.checked ? std::optional<Contents>(
                             std::in_place, pages, setup.manager.devices.front().page_bytes)
                       : std::nullopt;
}

}  // namespace

Twin::Twin(const TwinSetup& setup, const FaultPlan& faults)
    : setup_(setup),
      faults_(faults),
      contents_(contents_of(setup, page_count())),
      agent_(setup.agent),
      gateway_(agenda_, [this](const core::ManagerEvent& event) { tell(event); }),
      reader_(setup.paths,
              agenda_,
              faults_,
              contents_ ? &*contents_ : nullptr,
              [this](const core::AgentEvent& event) { pending_.emplace_back(event); }) {
  configure(setup.manager, setup.models);
  pending_.emplace_back(core::AgentEvent(core::StartAgent{}));
  for (std::size_t i = 0; i < setup.preload.size(); ++i) {
    tell(core::AdminLoad{.ticket = core::TicketId(i), .model = setup.preload[i]});
  }
  settle();
  plan_deaths(faults);
  plan_cuts(faults);
}

Twin::~Twin() = default;

void Twin::configure(const core::Configure& manager, const std::vector<TwinModel>& models) {
  core::AgentModels configured;
  for (const TwinModel& model : models) {
    models_[model.model.id] = model;
    configured.models.push_back(model.model);
  }
  for (const core::ManagerModel& model : manager.models) {
    names_[model.id] = model.name;
    if (!model.groups.empty()) {
      sharded_.insert(model.id);
    }
  }
  pending_.emplace_back(core::AgentEvent(configured));
  configured_ = manager;
  tell(manager);
}

// ---- What is cut off, and what dies beside workers ----

void Twin::plan_cuts(const FaultPlan& plan) {
  const auto some_time = [&](int times, void (Twin::*what)()) {
    for (int i = 0; i < times; ++i) {
      agenda_.after(faults_.some(plan.deaths_within), [this, what] { (this->*what)(); });
    }
  };
  some_time(plan.manager_deaths, &Twin::kill_manager);
  some_time(plan.manager_cuts, &Twin::cut_manager);
  some_time(plan.gateway_cuts, &Twin::cut_gateway);
}

void Twin::kill_manager() {
  if (!std::exchange(managed_, false)) {
    return;
  }
  manager_ = {};
  manager_wakes_ = {};
  pending_.emplace_back(core::AgentEvent(core::ForgetOrders{}));
  agenda_.after(faults_.some(faults_.away()), [this] {
    managed_ = true;
    tell(configured_);
    catch_up();
  });
}

void Twin::cut_manager() {
  if (std::exchange(cut_, true)) {
    return;
  }
  tell(core::HostLost{});
  pending_.emplace_back(core::AgentEvent(core::ForgetOrders{}));
  agenda_.after(faults_.some(faults_.away()), [this] {
    cut_ = false;
    catch_up();
  });
}

/// The manager hears all that the host and the gateway have.
void Twin::catch_up() {
  if (!managed_) {
    return;
  }
  tell(core::Settled{.settled = false});
  if (!cut_) {
    for (const core::ManagerEvent& event : memory_.all(agent_.models())) {
      tell(event);
    }
  }
  tell(gateway_.tell_all());
  tell(core::Settled{});
}

/// Both ends give up what the gateway had at the host.
void Twin::cut_gateway() {
  for (const core::PlaceLost& lost : gateway_.lose_all()) {
    for (const RequestId id : lost.requests) {
      send(lost.device, lost.epoch, core::CancelRequest{.request = id});
    }
    tell(lost);
  }
}

/// What a worker says of a request counts where the gateway has it there.
bool Twin::accepts(const core::WorkerSaid& said) {
  const auto* returned = std::get_if<core::RequestReturned>(&said.report);
  const auto* failed = std::get_if<core::RequestFailed>(&said.report);
  if (returned == nullptr && failed == nullptr) {
    return !cut_;
  }
  const RequestId id = returned != nullptr ? returned->request : failed->request;
  if (!gateway_.is_at(id, said.device, said.epoch)) {
    return false;
  }
  gateway_.take_back(id);
  return true;
}

void Twin::perform(const core::TellManager& command) {
  memory_.hear(command.event);
  const auto* down = std::get_if<core::WorkerDown>(&command.event);
  if (const auto* said = std::get_if<core::WorkerSaid>(&command.event)) {
    if (accepts(*said)) {
      pending_.emplace_back(command.event);
    }
  } else if (!cut_) {
    pending_.emplace_back(command.event);
  }
  if (down != nullptr && (cut_ || !managed_)) {
    pending_.emplace_back(core::ManagerEvent(gateway_.lose(down->device, down->epoch)));
  }
}

void Twin::plan_deaths(const FaultPlan& plan) {
  for (int i = 0; i < plan.deaths; ++i) {
    agenda_.after(faults_.some(plan.deaths_within), [this] {
      const Worker& worker = *lives_.at(faults_.below(lives_.size()));
      if (faults_.below(4) > 0) {
        kill(worker.device());
        return;
      }
      pending_.emplace_back(core::AgentEvent(
          core::WorkerHung{.device = worker.device(),
                           .epoch = worker.epoch(),
                           .reason = {.code = Code::kUnavailable, .message = kHangs}}));
    });
  }
}

bool Twin::all_up() const {
  const std::vector<core::DeviceStatus> all = manager_.devices();
  return std::all_of(
      all.begin(), all.end(), [](const core::DeviceStatus& device) { return device.up; });
}

/// Once, until all workers are ready.
void Twin::start() {
  if (std::exchange(started_, true)) {
    return;
  }
  while (!all_up()) {
    HEDDLE_CHECK(advance());
  }
  give_up_idle();
}

bool Twin::advance() {
  const bool any = agenda_.advance();
  settle();
  return any;
}

void Twin::rest(Instant until) {
  start();
  if (until <= agenda_.now()) {
    return;
  }
  bool over = false;
  agenda_.at(until, [&over] { over = true; });
  while (!over) {
    HEDDLE_CHECK(advance());
  }
}

std::vector<Answer> Twin::run(const std::vector<Ask>& asks,
                              Duration interval,
                              const std::function<void(Duration)>& moment) {
  start();
  const Instant start = agenda_.now();
  const std::size_t first = requests().size();
  for (const Ask& ask : asks) {
    agenda_.at(start + ask.at.time_since_epoch() + setup_.paths.arrive,
               [this, id = gateway_.plan(ask)] { arrive(id); });
  }
  for (Instant next = start; !all_ended();) {
    HEDDLE_CHECK(agenda_.advance());
    for (; next <= agenda_.now(); next += interval) {
      moment(next - start);
    }
    settle();
  }
  moment(agenda_.now() - start);
  const auto seen = [&](Instant at) { return Instant(at + setup_.paths.answer - start); };
  std::vector<Answer> answers;
  for (std::size_t i = first; i < requests().size(); ++i) {
    const Request& request = requests()[i];
    answers.push_back(
        {.last = seen(request.last), .tokens = request.tokens(), .error = request.error.message});
    if (answers.back().tokens > 0) {
      answers.back().first = seen(request.first);
    }
  }
  return answers;
}

std::vector<core::ModelStatus> Twin::models() const {
  return manager_.models();
}

std::vector<core::DeviceStatus> Twin::devices() const {
  std::vector<core::DeviceStatus> all = manager_.devices();
  for (core::DeviceStatus& device : all) {
    const auto worker = workers_.find(device.id);
    device.steps = worker == workers_.end() ? 0 : worker->second->steps();
  }
  return all;
}

ledger::PoolUsage Twin::host_usage() const {
  return agent_.host_usage();
}

template <class Core, class Event, class Command>
void Twin::step(Core& core, const Event& event, CoreRecord<Event, Command>& record) {
  std::vector<Command> commands;
  core.step(agenda_.now(), event, commands);
  if (contents_) {
    core.check_invariants();
    record.push_back({.at = agenda_.now(), .event = event, .commands = commands});
  }
  for (const Command& command : commands) {
    std::visit(
        [this](const auto& concrete) {
          if constexpr (std::is_same_v<std::decay_t<decltype(concrete)>, core::WakeAt>) {
            wake(concrete, std::is_same_v<Core, core::ManagerCore>);
          } else {
            perform(concrete);
          }
        },
        command);
  }
}

void Twin::settle() {
  while (!pending_.empty()) {
    const auto event = std::move(pending_.front());
    pending_.pop_front();
    if (const auto* heard = std::get_if<core::ManagerEvent>(&event)) {
      if (!managed_) {
        continue;  // Whoever takes over is told.
      }
      step(manager_, *heard, manager_record_);
      if (const auto* down = std::get_if<core::WorkerDown>(heard)) {
        pending_.emplace_front(core::ManagerEvent(gateway_.lose(down->device, down->epoch)));
      }
    } else {
      step(agent_, std::get<core::AgentEvent>(event), agent_record_);
    }
  }
}

/// The last time asked for is the one that counts.
void Twin::wake(core::WakeAt command, bool manager) {
  HEDDLE_CHECK(command.at > agenda_.now());
  Instant& wanted = manager ? manager_wakes_ : agent_wakes_;
  wanted = command.at;
  ++timers_;
  agenda_.at(command.at, [this, command, manager] {
    --timers_;
    if ((manager ? manager_wakes_ : agent_wakes_) != command.at) {
      return;
    }
    if (manager) {
      tell(core::Tick{});
    } else {
      pending_.emplace_back(core::AgentEvent(core::Tick{}));
    }
  });
}

void Twin::give_up_idle() {
  for (const core::ModelStatus& status : manager_.models()) {
    const Duration ttl = models_.at(status.id).ttl;
    if (ttl > Duration{} && core::idle_for(status, ttl, agenda_.now())) {
      tell(core::AdminUnload{.model = status.id, .why = core::EvictionReason::kIdle});
    }
  }
  agenda_.after(core::kIdleLookInterval, [this] { give_up_idle(); });
}

// ---- Requests ----

RequestId Twin::ask(const Ask& ask) {
  const RequestId id = gateway_.plan(ask);
  arrive(id);
  return id;
}

void Twin::arrive(RequestId id) {
  gateway_.arrive(id, manager_.tokens_max(requests().at(id.value()).ask.model));
}

void Twin::finish_choice(RequestId id, std::uint32_t choice) {
  const Request& request = requests().at(id.value());
  if (gateway_.finish_choice(id, choice) && request.dispatched) {
    send(request.device, request.epoch, core::FinishChoice{.request = id, .choice = choice});
  }
}

void Twin::cancel(RequestId id) {
  give_up(id);
  gateway_.cancel(id);
}

/// The request has ended, of which the manager hears next. It speaks of no other, unless the
/// gateway told of it all while it ended; then it is told.
bool Twin::ended_unheard(RequestId id) {
  if (requests().at(id.value()).end == Request::End::kNone) {
    return false;
  }
  const bool tells = std::any_of(pending_.begin(), pending_.end(), [&](const auto& event) {
    const auto* heard = std::get_if<core::ManagerEvent>(&event);
    const auto* finished = heard ? std::get_if<core::RequestFinished>(heard) : nullptr;
    const auto* cancelled = heard ? std::get_if<core::RequestCancelled>(heard) : nullptr;
    return (finished != nullptr && finished->request == id) ||
           (cancelled != nullptr && cancelled->request == id);
  });
  HEDDLE_CHECK(tells || faults_.away() > Duration{});
  if (!tells) {
    tell(core::RequestCancelled{.request = id});
  }
  return true;
}

void Twin::perform(const core::FailRequest& command) {
  if (ended_unheard(command.request)) {
    return;
  }
  give_up(command.request);
  gateway_.fail(command);
}

/// The worker that has the request, if one has, is to forget it.
void Twin::give_up(RequestId id) {
  const Request& request = requests().at(id.value());
  if (request.dispatched && request.end == Request::End::kNone) {
    send(request.device, request.epoch, core::CancelRequest{.request = id});
  }
}

void Twin::perform(const core::Dispatch& command) {
  if (ended_unheard(command.request)) {
    return;
  }
  give_up(command.request);
  core::Submit submit = gateway_.submit(command);
  HEDDLE_CHECK(!sharded_.contains(submit.model) ||
               groups_.contains({command.device, command.epoch, submit.model}));
  send(command.device, command.epoch, std::move(submit));
}

void Twin::perform(const core::TellWorker& command) {
  if (cut_) {
    return;
  }
  send(command.device, command.epoch, command.message);
}

void Twin::perform(const core::Decision& command) {
  HEDDLE_CHECK(!command.why.empty());
  decisions_.push_back({.at = agenda_.now(),
                        .kind = command.kind,
                        .model = names_[command.model],
                        .device = command.device
                                      ? setup_.manager.devices.at(command.device->value()).name
                                      : std::string(),
                        .for_model = command.for_model ? names_[*command.for_model] : std::string(),
                        .why = command.why});
}

void Twin::perform(const core::LoadMeasured& command) {
  HEDDLE_CHECK(command.load.peak >= 0);
}

// ---- Workers ----

void Twin::perform(const core::SpawnWorker& command) {
  HEDDLE_CHECK(!workers_.contains(command.device));
  const Surroundings around{.models = models_,
                            .page_count = page_count(),
                            .agenda = agenda_,
                            .faults = faults_,
                            .contents = contents_ ? &*contents_ : nullptr};
  const auto worker = std::make_shared<Worker>(
      device_of(command.device),
      command.epoch,
      command.pages,
      around,
      [this](const Worker& from, const core::WorkerReport& report) { hear(from, report); });
  lives_.push_back(worker);
  workers_[command.device] = worker;
  agenda_.after(setup_.paths.start + faults_.some(faults_.late().start), [this, worker] {
    if (worker->alive()) {
      pending_.emplace_back(core::AgentEvent(
          core::WorkerConnected{.device = worker->device(), .epoch = worker->epoch()}));
    }
  });
}

/// These workers keep the rules: one of a group goes with another, or it hangs.
void Twin::perform(const core::KillWorker& command) {
  HEDDLE_CHECK(command.reason.code == Code::kUnavailable);
  kill(command.device);
}

/// The agent hears of it after all that the worker has said.
void Twin::kill(DeviceId device) {
  const auto found = workers_.find(device);
  if (found == workers_.end()) {
    return;
  }
  const std::shared_ptr<Worker> worker = workers_.extract(found).mapped();
  worker->die();
  const Instant heard =
      std::max(agenda_.now(), ways_[device].from) + faults_.some(faults_.late().exit);
  agenda_.at(heard, [this, worker] {
    pending_.emplace_back(
        core::AgentEvent(core::WorkerExited{.device = worker->device(), .epoch = worker->epoch()}));
  });
}

/// What the leader does is the group's, at the pace of the slowest. Every member has its shard, and
/// nothing else; one that is not there was killed, which the agent has not heard yet.
void Twin::perform(const core::ConnectGroup& command) {
  Duration step{};
  Duration token{};
  for (const core::GroupMember& member : command.members) {
    const TwinDevice& device = device_of(member.device);
    step = std::max(step, device.pace_step);
    token = std::max(token, device.pace_token);
    const auto worker = workers_.find(member.device);
    HEDDLE_CHECK(worker == workers_.end() ||
                 (worker->second->epoch() == member.epoch &&
                  worker->second->open_models() == std::vector<ModelId>{member.model}));
  }
  const core::GroupMember& leader = command.members.front();
  groups_.insert({leader.device, leader.epoch, leader.model});
  if (const auto worker = workers_.find(leader.device); worker != workers_.end()) {
    worker->second->lead(leader.model, step, token);
  }
}

void Twin::perform(const core::ConnectGuests& command) {
  const auto host = workers_.find(command.host);
  const auto hot = workers_.find(command.hot);
  if (host != workers_.end() && hot != workers_.end() &&
      host->second->epoch() == command.host_epoch && hot->second->epoch() == command.hot_epoch) {
    hot->second->meet(command.model, host->second);
  }
}

void Twin::perform(const core::DisconnectGuests& command) {
  const auto hot = workers_.find(command.hot);
  if (hot != workers_.end() && hot->second->epoch() == command.hot_epoch) {
    hot->second->meet(command.model, nullptr);
  }
}

/// Numbers of pages are below this.
std::uint64_t Twin::page_count() const {
  std::int64_t pages = setup_.agent.host_pages;
  for (const TwinDevice& device : setup_.devices) {
    pages += device.device.pages;
  }
  return static_cast<std::uint64_t>(pages);
}

const TwinDevice& Twin::device_of(DeviceId id) const {
  const auto device = std::find_if(setup_.devices.begin(),
                                   setup_.devices.end(),
                                   [id](const TwinDevice& each) { return each.device.id == id; });
  HEDDLE_CHECK(device != setup_.devices.end());
  return *device;
}

void Twin::perform(const core::SendWorker& command) {
  send(command.device, command.epoch, command.message);
}

/// What is for a life that has ended is lost.
void Twin::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  const auto found = workers_.find(device);
  if (found == workers_.end() || found->second->epoch() != epoch) {
    return;
  }
  Instant& last = ways_[device].to;
  last = std::max(last, agenda_.now() + setup_.paths.hop + faults_.some(faults_.late().hop));
  agenda_.at(last,
             [worker = found->second, message = std::move(message)] { worker->hear(message); });
}

void Twin::hear(const Worker& worker, const core::WorkerReport& report) {
  Instant& last = ways_[worker.device()].from;
  last = std::max(last, agenda_.now() + setup_.paths.hop + faults_.some(faults_.late().hop));
  agenda_.at(last, [this, device = worker.device(), epoch = worker.epoch(), report] {
    if (const auto* produced = std::get_if<core::TokensProduced>(&report)) {
      for (const core::TokenEvent& token : produced->tokens) {
        if (gateway_.is_at(token.request, device, epoch)) {
          gateway_.take(token);
        }
      }
    } else {
      pending_.emplace_back(
          core::AgentEvent(core::WorkerSaid{.device = device, .epoch = epoch, .report = report}));
    }
  });
}

// ---- The reader ----

void Twin::perform(const core::StartRead& command) {
  reader_.start(command, models_.at(command.model).model.image_bytes);
}

}  // namespace heddle::twin
