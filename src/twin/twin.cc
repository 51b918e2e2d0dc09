#include "twin/twin.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/idle.h"
#include "twin/play.h"

namespace heddle::twin {

Twin::Twin(const TwinSetup& setup, const FaultPlan& faults)
    : setup_(setup),
      faults_(faults),
      pipes_(setup_.times, setup_.paths, agenda_, faults_),
      gateway_(agenda_, FrontId(), [this](const core::ManagerEvent& event) { tell(event); }),
      host_(setup.hosts.front(), around(), handlers()) {
  HEDDLE_CHECK(setup.hosts.size() == 1);
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

HostSurroundings Twin::around() {
  return {.models = models_,
          .paths = setup_.paths,
          .agenda = agenda_,
          .faults = faults_,
          .page_bytes = setup_.checked ? setup_.manager.devices.front().page_bytes : 0,
          .checked = setup_.checked,
          .pipes = pipes_};
}

HostHandlers Twin::handlers() {
  return {.on_heard = [this](core::AgentEvent event) { pending_.emplace_back(std::move(event)); },
          .on_said = [this](const core::ManagerEvent& event) { said(event); },
          .on_tokens =
              [this](Life from, const std::vector<core::TokenEvent>& tokens) {
                for (const core::TokenEvent& token : tokens) {
                  if (gateway_.is_at(token.request, from.device, from.epoch)) {
                    gateway_.take(token);
                  }
                }
              }};
}

void Twin::configure(const core::Configure& manager, const std::vector<TwinModel>& models) {
  core::AgentModels configured;
  for (const TwinModel& model : models) {
    models_[model.model.id] = model;
    ttls_[model.model.id] = model.ttl;
    configured.models.push_back(model.model);
  }
  for (const TwinEngine& engine : setup_.hosts.front().engines) {
    ttls_[engine.hosted.model] = engine.ttl;
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
    for (const core::ManagerEvent& event : host_.known()) {
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
      host_.send(lost.device, lost.epoch, core::CancelRequest{.request = id});
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

void Twin::said(const core::ManagerEvent& event) {
  if (const auto* unanswered = std::get_if<core::RequestUnanswered>(&event)) {
    gateway_.take_back(unanswered->request);
  }
  const auto* down = std::get_if<core::WorkerDown>(&event);
  const auto* of_worker = std::get_if<core::WorkerSaid>(&event);
  if (of_worker != nullptr ? accepts(*of_worker) : !cut_) {
    pending_.emplace_back(event);
  }
  if (down != nullptr && (cut_ || !managed_)) {
    pending_.emplace_back(core::ManagerEvent(gateway_.lose(down->device, down->epoch)));
  }
}

void Twin::plan_deaths(const FaultPlan& plan) {
  for (int i = 0; i < plan.deaths; ++i) {
    agenda_.after(faults_.some(plan.deaths_within), [this] {
      const Worker& worker = *lives().at(faults_.below(lives().size()));
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
  twin::rest(*this, until);
}

std::vector<Answer> Twin::run(const std::vector<Ask>& asks,
                              Duration interval,
                              const std::function<void(Duration)>& moment) {
  start();
  return play(*this, setup_.paths, asks, interval, moment);
}

std::vector<core::ModelStatus> Twin::models() const {
  return manager_.models();
}

std::vector<core::DeviceStatus> Twin::devices() const {
  std::vector<core::DeviceStatus> all = manager_.devices();
  for (core::DeviceStatus& device : all) {
    const Worker* worker = host_.worker(device.id);
    device.steps = worker == nullptr ? 0 : worker->steps();
  }
  return all;
}

ledger::PoolUsage Twin::host_usage() const {
  return host_.agent().host_usage();
}

void Twin::step(const core::ManagerEvent& event) {
  std::vector<core::ManagerCommand> commands;
  manager_.step(agenda_.now(), event, commands);
  if (setup_.checked) {
    manager_.check_invariants();
    manager_record_.push_back({.at = agenda_.now(), .event = event, .commands = commands});
  }
  for (const core::ManagerCommand& command : commands) {
    std::visit([this](const auto& concrete) { perform(concrete); }, command);
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
      step(*heard);
      if (const auto* down = std::get_if<core::WorkerDown>(heard)) {
        pending_.emplace_front(core::ManagerEvent(gateway_.lose(down->device, down->epoch)));
      }
    } else {
      host_.step(std::get<core::AgentEvent>(event));
    }
  }
}

/// The last time asked for is the one that counts.
void Twin::perform(const core::WakeAt& command) {
  HEDDLE_CHECK(command.at > agenda_.now());
  manager_wakes_ = command.at;
  ++timers_;
  agenda_.at(command.at, [this, at = command.at] {
    --timers_;
    if (manager_wakes_ == at) {
      tell(core::Tick{});
    }
  });
}

void Twin::give_up_idle() {
  for (const core::ModelStatus& status : manager_.models()) {
    const Duration ttl = ttls_.at(status.id);
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
  const ModelId model = requests().at(id.value()).ask.model;
  gateway_.arrive(
      id, host_.engines().hosts(model) ? std::nullopt : std::optional(manager_.tokens_max(model)));
}

void Twin::finish_choice(RequestId id, std::uint32_t choice) {
  const Request& request = requests().at(id.value());
  if (gateway_.finish_choice(id, choice) && request.dispatched) {
    host_.send(request.device, request.epoch, core::FinishChoice{.request = id, .choice = choice});
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
    host_.send(request.device, request.epoch, core::CancelRequest{.request = id});
  }
}

void Twin::perform(const core::Dispatch& command) {
  if (ended_unheard(command.request)) {
    return;
  }
  give_up(command.request);
  core::Submit submit = gateway_.submit(command);
  HEDDLE_CHECK(!sharded_.contains(submit.model) ||
               host_.is_connected(command.device, command.epoch, submit.model));
  host_.send(command.device, command.epoch, std::move(submit));
}

void Twin::perform(const core::TellWorker& command) {
  if (cut_) {
    return;
  }
  host_.send(command.device, command.epoch, command.message);
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
                        .why = command.why,
                        .first_token = command.first_token});
}

void Twin::perform(const core::LoadMeasured& command) {
  HEDDLE_CHECK(command.load.peak >= 0);
}

void Twin::perform(const core::PlanMeasured& command) {
  HEDDLE_CHECK(command.predicted >= Duration{} && command.took >= Duration{});
}

}  // namespace heddle::twin
