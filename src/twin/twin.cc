#include "twin/twin.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/idle.h"

namespace heddle::twin {

namespace {

/// A file is read in parts of this size, after each of which the reader tells how far it is.
constexpr std::uint64_t kReadPart = std::uint64_t{4} << 20U;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

}  // namespace

Twin::Twin(const TwinSetup& setup) : setup_(setup), agent_(setup.agent) {
  core::AgentModels models;
  for (const TwinModel& model : setup_.models) {
    models_[model.model.id] = model;
    models.models.push_back(model.model);
  }
  for (const core::ManagerModel& model : setup_.manager.models) {
    names_[model.id] = model.name;
  }
  pending_.emplace_back(core::AgentEvent(models));
  pending_.emplace_back(core::ManagerEvent(setup_.manager));
  pending_.emplace_back(core::AgentEvent(core::StartAgent{}));
  for (std::size_t i = 0; i < setup_.preload.size(); ++i) {
    pending_.emplace_back(core::ManagerEvent(
        core::AdminLoad{.ticket = core::TicketId(i), .model = setup_.preload[i]}));
  }
  settle();
  const auto up = [](const core::DeviceStatus& device) { return device.up; };
  for (auto all = manager_.devices(); !std::all_of(all.begin(), all.end(), up);
       all = manager_.devices()) {
    HEDDLE_CHECK(agenda_.advance());
    settle();
  }
  give_up_idle();
}

Twin::~Twin() = default;

void Twin::rest(Instant until) {
  if (until <= agenda_.now()) {
    return;
  }
  bool over = false;
  agenda_.at(until, [&over] { over = true; });
  while (!over) {
    HEDDLE_CHECK(agenda_.advance());
    settle();
  }
}

std::vector<Answer> Twin::run(const std::vector<Ask>& asks,
                              Duration interval,
                              const std::function<void(Duration)>& moment) {
  start_ = agenda_.now();
  requests_.clear();
  unanswered_ = asks.size();
  for (std::size_t i = 0; i < asks.size(); ++i) {
    requests_.push_back({.ask = asks[i]});
    agenda_.at(start_ + asks[i].at.time_since_epoch() + setup_.paths.arrive,
               [this, i] { arrive(RequestId(i)); });
  }
  for (Instant next = start_; unanswered_ > 0;) {
    HEDDLE_CHECK(agenda_.advance());
    for (; next <= agenda_.now(); next += interval) {
      moment(next - start_);
    }
    settle();
  }
  moment(agenda_.now() - start_);
  std::vector<Answer> answers;
  for (const Request& request : requests_) {
    answers.push_back(request.answer);
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

void Twin::settle() {
  while (!pending_.empty()) {
    const auto event = std::move(pending_.front());
    pending_.pop_front();
    if (const auto* heard = std::get_if<core::ManagerEvent>(&event)) {
      std::vector<core::ManagerCommand> commands;
      manager_.step(agenda_.now(), *heard, commands);
      for (const core::ManagerCommand& command : commands) {
        std::visit(Overloaded{[this](const core::WakeAt& at) { wake(at, true); },
                              [this](const auto& concrete) { perform(concrete); }},
                   command);
      }
    } else {
      std::vector<core::AgentCommand> commands;
      agent_.step(agenda_.now(), std::get<core::AgentEvent>(event), commands);
      for (const core::AgentCommand& command : commands) {
        std::visit(Overloaded{[this](const core::WakeAt& at) { wake(at, false); },
                              [this](const auto& concrete) { perform(concrete); }},
                   command);
      }
    }
  }
}

/// The last time asked for is the one that counts.
void Twin::wake(core::WakeAt command, bool manager) {
  Instant& wanted = manager ? manager_wakes_ : agent_wakes_;
  wanted = command.at;
  agenda_.at(std::max(command.at, agenda_.now()), [this, command, manager] {
    if ((manager ? manager_wakes_ : agent_wakes_) != command.at) {
      return;
    }
    if (manager) {
      pending_.emplace_back(core::ManagerEvent(core::Tick{}));
    } else {
      pending_.emplace_back(core::AgentEvent(core::Tick{}));
    }
  });
}

void Twin::give_up_idle() {
  for (const core::ModelStatus& status : manager_.models()) {
    const Duration ttl = models_.at(status.id).ttl;
    if (ttl > Duration{} && core::idle_for(status, ttl, agenda_.now())) {
      pending_.emplace_back(core::ManagerEvent(
          core::AdminUnload{.model = status.id, .why = core::EvictionReason::kIdle}));
    }
  }
  agenda_.after(core::kIdleLookInterval, [this] { give_up_idle(); });
}

// ---- Requests ----

void Twin::arrive(RequestId id) {
  Request& request = requests_.at(id.value());
  request.arrived = agenda_.now();
  request.most = std::min(
      request.ask.output_tokens,
      std::max<std::int64_t>(manager_.tokens_max(request.ask.model) - request.ask.input_tokens, 1));
  pending_.emplace_back(
      core::ManagerEvent(core::RequestArrived{.request = id,
                                              .model = request.ask.model,
                                              .prompt_tokens = request.ask.input_tokens,
                                              .max_tokens = request.most}));
}

void Twin::perform(const core::Dispatch& command) {
  Request& request = requests_.at(command.request.value());
  request.most = std::min(request.most, command.tokens - request.ask.input_tokens);
  core::Submit submit{
      .request = command.request,
      .model = request.ask.model,
      .prompt = std::vector<TokenId>(static_cast<std::size_t>(request.ask.input_tokens)),
      .choices = {{.generated =
                       std::vector<TokenId>(static_cast<std::size_t>(request.answer.tokens))}},
      .age = agenda_.now() - request.arrived,
      .due = command.due - agenda_.now()};
  submit.choices.front().params.max_tokens = request.most;
  send(command.device, command.epoch, std::move(submit));
}

void Twin::perform(const core::TellWorker& command) {
  send(command.device, command.epoch, command.message);
}

void Twin::take(const core::TokenEvent& token) {
  Request& request = requests_.at(token.request.value());
  if (request.ended || token.position < request.answer.tokens) {
    return;  // Late, or a duplicate.
  }
  const Instant seen = agenda_.now() + setup_.paths.answer;
  request.answer.last = Instant(seen - start_);
  if (request.answer.tokens++ == 0) {
    request.answer.first = request.answer.last;
  }
  if (token.finish != spec::FinishReason::kNone) {
    end(request);
    const Duration after_first = request.answer.last - request.answer.first;
    core::RequestFinished finished{
        .request = token.request,
        .ttft = request.answer.first - Instant(request.arrived - start_) - setup_.paths.answer};
    if (request.answer.tokens > 1) {
      finished.tpot = after_first / (request.answer.tokens - 1);
    }
    pending_.emplace_back(core::ManagerEvent(finished));
  }
}

void Twin::end(Request& request) {
  HEDDLE_CHECK(!request.ended);
  request.ended = true;
  --unanswered_;
}

void Twin::perform(const core::FailRequest& command) {
  Request& request = requests_.at(command.request.value());
  request.answer.error = command.error.message;
  request.answer.last = Instant(agenda_.now() + setup_.paths.answer - start_);
  end(request);
}

void Twin::perform(const core::Decision& command) {
  decisions_.push_back({.at = agenda_.now(),
                        .kind = command.kind,
                        .model = names_[command.model],
                        .device = command.device
                                      ? setup_.manager.devices.at(command.device->value()).name
                                      : std::string(),
                        .for_model = command.for_model ? names_[*command.for_model] : std::string(),
                        .why = command.why});
}

// ---- Workers ----

void Twin::perform(const core::SpawnWorker& command) {
  workers_[command.device] = std::make_shared<Worker>(
      device_of(command.device),
      command.epoch,
      page_count(),
      command.pages,
      models_,
      agenda_,
      [this](const Worker& from, const core::WorkerReport& report) { hear(from, report); });
  agenda_.after(setup_.paths.start, [this, device = command.device, epoch = command.epoch] {
    pending_.emplace_back(
        core::AgentEvent(core::WorkerConnected{.device = device, .epoch = epoch}));
  });
}

void Twin::perform(const core::KillWorker& /*command*/) {
  HEDDLE_CHECK(false);  // These workers keep the rules.
}

/// What the leader does is the group's, at the pace of the slowest.
void Twin::perform(const core::ConnectGroup& command) {
  Duration step{};
  Duration token{};
  for (const core::GroupMember& member : command.members) {
    const TwinDevice& device = device_of(member.device);
    step = std::max(step, device.pace_step);
    token = std::max(token, device.pace_token);
  }
  const core::GroupMember& leader = command.members.front();
  workers_.at(leader.device)->lead(leader.model, step, token);
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

void Twin::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  const std::shared_ptr<Worker>& worker = workers_.at(device);
  HEDDLE_CHECK(worker->epoch() == epoch);
  Instant& last = ways_[device].to;
  last = std::max(last, agenda_.now() + setup_.paths.hop);
  agenda_.at(last, [worker, message = std::move(message)] { worker->hear(message); });
}

void Twin::hear(const Worker& worker, const core::WorkerReport& report) {
  Instant& last = ways_[worker.device()].from;
  last = std::max(last, agenda_.now() + setup_.paths.hop);
  agenda_.at(last, [this, device = worker.device(), epoch = worker.epoch(), report] {
    if (const auto* produced = std::get_if<core::TokensProduced>(&report)) {
      for (const core::TokenEvent& token : produced->tokens) {
        take(token);
      }
    } else {
      pending_.emplace_back(
          core::AgentEvent(core::WorkerSaid{.device = device, .epoch = epoch, .report = report}));
    }
  });
}

// ---- The reader ----

void Twin::perform(const core::StartRead& command) {
  HEDDLE_CHECK(!reading_);
  reading_ = command;
  read_stops_ = false;
  read_on(0);
}

void Twin::read_on(std::uint64_t done) {
  const std::uint64_t all = models_.at(reading_->model).model.image_bytes;
  const std::uint64_t part = std::min(kReadPart, all - done);
  agenda_.after(from_seconds(static_cast<double>(part) / setup_.paths.read), [=, this] {
    const ModelId model = reading_->model;
    if (done + part == all || read_stops_) {
      reading_.reset();
      core::ReadEnded ended{.model = model};
      if (read_stops_) {
        ended.error = Error{.code = Code::kCancelled, .message = "as asked"};
      }
      pending_.emplace_back(core::AgentEvent(ended));
      return;
    }
    pending_.emplace_back(
        core::AgentEvent(core::ReadProgress{.model = model, .bytes = done + part}));
    read_on(done + part);
  });
}

void Twin::perform(const core::CancelRead& command) {
  HEDDLE_CHECK(reading_ && reading_->model == command.model);
  read_stops_ = true;
}

// There are no engines here that anybody could lend pages to.
void Twin::perform(const core::GrantLoan& /*command*/) {
  HEDDLE_CHECK(false);
}
void Twin::perform(const core::RefuseLoan& /*command*/) {
  HEDDLE_CHECK(false);
}
void Twin::perform(const core::EndLoan& /*command*/) {
  HEDDLE_CHECK(false);
}
void Twin::perform(const core::BackPages& /*command*/) {
  HEDDLE_CHECK(false);
}

}  // namespace heddle::twin
