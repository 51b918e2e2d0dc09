#include "twin/host.h"

#include <algorithm>
#include <utility>

namespace heddle::twin {

namespace {

std::optional<Contents> contents_of(const HostSurroundings& around, std::uint64_t pages) {
  return around.checked ? std::optional<Contents>(std::in_place, pages, around.page_bytes)
                        : std::nullopt;
}

}  // namespace

Host::Host(const HostSetup& setup, const HostSurroundings& around, HostHandlers handlers)
    : setup_(setup),
      around_(around),
      handlers_(std::move(handlers)),
      contents_(contents_of(around, page_count())),
      agent_(setup.agent),
      reader_(around.paths,
              around.agenda,
              around.faults,
              contents_ ? &*contents_ : nullptr,
              [this](const core::AgentEvent& event) { heard(event); }),
      fetcher_(setup.nic,
               around.paths,
               around.agenda,
               around.faults,
               contents_ ? &*contents_ : nullptr,
               around.find_peer,
               [this](const core::AgentEvent& event) { heard(event); }),
      engines_(setup, around.agenda, around.checked, engine_handlers()) {}

Engines::Handlers Host::engine_handlers() {
  return {.on_loan = [this](core::AgentEvent event) { heard(std::move(event)); },
          .on_said = [this](const core::ManagerEvent& event) { say(event); },
          .on_tokens =
              [this](Life from, const std::vector<core::TokenEvent>& tokens) {
                if (alive_) {
                  handlers_.on_tokens(from, tokens);
                }
              }};
}

void Host::heard(core::AgentEvent event) const {
  if (alive_) {
    handlers_.on_heard(std::move(event));
  }
}

void Host::step(const core::AgentEvent& event) {
  if (!alive_) {
    return;
  }
  const auto* load = std::get_if<core::LoadOn>(&event);
  const auto* evict = std::get_if<core::EvictFrom>(&event);
  if (load != nullptr && engines_.hosts(load->model)) {
    engines_.hear(*load);
    return;
  }
  if (evict != nullptr && engines_.hosts(evict->model)) {
    engines_.hear(*evict);
    return;
  }
  std::vector<core::AgentCommand> commands;
  agent_.step(around_.agenda.now(), event, commands);
  if (contents_) {
    agent_.check_invariants();
    record_.push_back({.at = around_.agenda.now(), .event = event, .commands = commands});
  }
  for (const core::AgentCommand& command : commands) {
    std::visit([this](const auto& concrete) { perform(concrete); }, command);
  }
  if (std::holds_alternative<core::AgentModels>(event)) {
    engines_.begin();
  }
}

void Host::die() {
  alive_ = false;
  for (const auto& [device, worker] : std::exchange(workers_, {})) {
    worker->die();
    around_.pipes.close(*worker);
  }
}

/// The last time asked for is the one that counts.
void Host::perform(const core::WakeAt& command) {
  HEDDLE_CHECK(command.at > around_.agenda.now());
  wakes_ = command.at;
  ++timers_;
  around_.agenda.at(command.at, [this, at = command.at] {
    --timers_;
    if (wakes_ == at) {
      heard(core::Tick{});
    }
  });
}

void Host::perform(const core::TellManager& command) {
  say(command.event);
}

void Host::say(const core::ManagerEvent& event) {
  if (alive_) {
    memory_.hear(event);
    handlers_.on_said(event);
  }
}

/// Clearing memory takes as long as mapping it.
void Host::perform(const core::BackPages& command) {
  const double seconds =
      device_of(command.device).map_page * static_cast<double>(command.pages.size());
  around_.agenda.after(from_seconds(seconds), [this, command] {
    heard(core::PagesBacked{
        .device = command.device, .model = command.model, .pages = command.pages});
  });
}

// ---- Workers ----

const Worker* Host::worker(DeviceId device) const {
  const auto found = workers_.find(device);
  return found == workers_.end() ? nullptr : found->second.get();
}

void Host::perform(const core::SpawnWorker& command) {
  HEDDLE_CHECK(!workers_.contains(command.device));
  const Surroundings around{.models = around_.models,
                            .page_count = page_count(),
                            .agenda = around_.agenda,
                            .faults = around_.faults,
                            .pipes = around_.pipes,
                            .contents = contents_ ? &*contents_ : nullptr};
  const auto worker = std::make_shared<Worker>(
      device_of(command.device),
      command.epoch,
      command.pages,
      around,
      [this](const Worker& from, const core::WorkerReport& report) { hear(from, report); });
  lives_.push_back(worker);
  workers_[command.device] = worker;
  around_.agenda.after(
      around_.paths.start + around_.faults.some(around_.faults.late().start), [this, worker] {
        if (worker->alive()) {
          heard(core::WorkerConnected{.device = worker->device(), .epoch = worker->epoch()});
        }
      });
}

/// These workers keep the rules: one of a group goes with another, or it hangs.
void Host::perform(const core::KillWorker& command) {
  HEDDLE_CHECK(command.reason.code == Code::kUnavailable);
  kill(command.device);
}

/// The agent hears of it after all that the worker has said.
void Host::kill(DeviceId device) {
  const auto found = workers_.find(device);
  if (found == workers_.end()) {
    return;
  }
  const std::shared_ptr<Worker> worker = workers_.extract(found).mapped();
  worker->die();
  around_.pipes.close(*worker);
  const Instant ended = std::max(around_.agenda.now(), ways_[device].from) +
                        around_.faults.some(around_.faults.late().exit);
  around_.agenda.at(ended, [this, worker] {
    heard(core::WorkerExited{.device = worker->device(), .epoch = worker->epoch()});
  });
}

void Host::perform(const core::ConnectGroup& command) {
  const core::GroupMember& leader = command.members.front();
  groups_.insert({leader.device, leader.epoch, leader.model});
  if (around_.models.at(leader.model).stage.stages > 1) {
    connect_pipe(command);
  } else {
    connect_ranks(command);
  }
}

/// Each worker here is told which stage it is, before anything else is sent to it.
void Host::connect_pipe(const core::ConnectGroup& command) {
  Pipes::Part part{.on_news = [this](core::AgentEvent news) { heard(std::move(news)); }};
  for (std::size_t stage = 0; stage < command.members.size(); ++stage) {
    const core::GroupMember& member = command.members[stage];
    const auto found = workers_.find(member.device);
    if (found != workers_.end() && found->second->epoch() == member.epoch) {
      part.workers[stage] = found->second;
    }
  }
  const std::map<std::size_t, std::shared_ptr<Worker>> workers = part.workers;
  const PipeNo pipe = around_.pipes.connect(id(), command, std::move(part));
  for (const auto& [stage, worker] : workers) {
    around_.agenda.at(arrival_at(worker->device()),
                      [worker, pipe, stage, model = command.members[stage].model] {
                        worker->join(pipe, model, stage);
                      });
  }
}

void Host::perform(const core::LeaveGroup& command) {
  around_.pipes.leave(id(), command.group);
}

/// What the leader does is the group's, at the pace of the slowest. Every member has its shard; one
/// that is not there was killed, which the agent has not heard yet.
void Host::connect_ranks(const core::ConnectGroup& command) {
  Duration step{};
  Duration token{};
  const core::GroupMember& leader = command.members.front();
  const auto first = workers_.find(leader.device);
  std::vector<std::shared_ptr<Worker>> followers;
  for (const core::GroupMember& member : command.members) {
    const TwinDevice& device = device_of(member.device);
    step = std::max(step, device.pace_step);
    token = std::max(token, device.pace_token);
    const auto worker = workers_.find(member.device);
    if (worker == workers_.end()) {
      continue;
    }
    const std::vector<ModelId> open = worker->second->open_models();
    HEDDLE_CHECK(worker->second->epoch() == member.epoch &&
                 std::ranges::find(open, member.model) != open.end());
    if (worker != first && first != workers_.end()) {
      worker->second->follow(member.model, leader.model, first->second);
      followers.push_back(worker->second);
    }
  }
  if (first != workers_.end()) {
    first->second->lead(leader.model, step, token, followers);
  }
}

void Host::perform(const core::ConnectGuests& command) {
  const auto host = workers_.find(command.host);
  const auto hot = workers_.find(command.hot);
  if (host != workers_.end() && hot != workers_.end() &&
      host->second->epoch() == command.host_epoch && hot->second->epoch() == command.hot_epoch) {
    hot->second->meet(command.model, host->second);
  }
}

void Host::perform(const core::DisconnectGuests& command) {
  const auto hot = workers_.find(command.hot);
  if (hot != workers_.end() && hot->second->epoch() == command.hot_epoch) {
    hot->second->meet(command.model, nullptr);
  }
}

/// Numbers of pages are below this.
std::uint64_t Host::page_count() const {
  std::int64_t pages = setup_.agent.host_pages;
  for (const TwinDevice& device : setup_.devices) {
    pages += device.device.pages;
  }
  return static_cast<std::uint64_t>(pages);
}

const TwinDevice& Host::device_of(DeviceId id) const {
  const auto device = std::find_if(setup_.devices.begin(),
                                   setup_.devices.end(),
                                   [id](const TwinDevice& each) { return each.device.id == id; });
  HEDDLE_CHECK(device != setup_.devices.end());
  return *device;
}

void Host::perform(const core::SendWorker& command) {
  send(command.device, command.epoch, command.message);
}

/// Of what is sent to the device's worker now.
Instant Host::arrival_at(DeviceId device) {
  Instant& last = ways_[device].to;
  last = std::max(
      last,
      around_.agenda.now() + around_.paths.hop + around_.faults.some(around_.faults.late().hop));
  return last;
}

void Host::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  if (engines_.take({.device = device, .epoch = epoch}, message)) {
    return;
  }
  const auto found = workers_.find(device);
  if (found == workers_.end() || found->second->epoch() != epoch) {
    return;
  }
  around_.agenda.at(arrival_at(device), [worker = found->second, message = std::move(message)] {
    worker->hear(message);
  });
}

void Host::hear(const Worker& worker, const core::WorkerReport& report) {
  Instant& last = ways_[worker.device()].from;
  last = std::max(
      last,
      around_.agenda.now() + around_.paths.hop + around_.faults.some(around_.faults.late().hop));
  around_.agenda.at(last, [this, device = worker.device(), epoch = worker.epoch(), report] {
    const auto* produced = std::get_if<core::TokensProduced>(&report);
    if (produced == nullptr) {
      heard(core::WorkerSaid{.device = device, .epoch = epoch, .report = report});
    } else if (alive_) {
      handlers_.on_tokens({.device = device, .epoch = epoch}, produced->tokens);
    }
  });
}

// ---- The reader ----

void Host::perform(const core::StartRead& command) {
  const TwinModel& model = around_.models.at(command.model);
  if (model.model.fetched) {
    fetcher_.start(command, model);
  } else {
    reader_.start(command, model.model.image_bytes);
  }
}

void Host::perform(const core::CancelRead& command) {
  if (fetcher_.fetches(command.model)) {
    fetcher_.cancel(command.model);
  } else {
    reader_.cancel(command.model);
  }
}

}  // namespace heddle::twin
