#include "worker/engine_loop.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/codec.h"

#include <pthread.h>
#include <unistd.h>

namespace heddle::worker {

EngineLoop::EngineLoop(rpc::WorkerHello hello,
                       std::unique_ptr<device::Device> device,
                       Outbox& outbox,
                       const GuestTime& guests)
    : hello_(std::move(hello)),
      device_(std::move(device)),
      outbox_(outbox),
      guests_(guests),
      core_(core::WorkerOptions{
          .device = hello_.device,
          .epoch = hello_.epoch,
          .pages = static_cast<std::int64_t>(hello_.pages.size()) - hello_.kv_pages,
          .device_pages = hello_.device_pages,
          .step = hello_.step,
          .prefix_cache = hello_.prefix_cache,
          .queue = hello_.queue,
          .fixed_parts = hello_.fixed_parts,
          .graph_pages = DeviceExecutor::most_graph_pages(
              *device_,
              std::max(static_cast<std::int64_t>(hello_.pages.size()), hello_.device_pages))}),
      thread_([this] { run(); }) {}

void EngineLoop::hear(core::WorkerMessage message) {
  // Queued first: whoever finds the model not open yet here will find the message there.
  inbox_.push(Heard{.message = message, .at = steady_now()});
  if (DeviceExecutor* executor = early_.load(std::memory_order_acquire)) {
    executor->hear_early(message);
  }
}

bool EngineLoop::is_news(const Input& input) {
  if (const auto* event = std::get_if<core::WorkerEvent>(&input)) {
    return !std::holds_alternative<core::CopyProgress>(*event);
  }
  const auto* heard = std::get_if<Heard>(&input);
  return heard == nullptr || !std::holds_alternative<core::ImageProgress>(heard->message);
}

void EngineLoop::push(Input input) {
  const bool news = is_news(input);
  inbox_.push(std::move(input));
  DeviceExecutor* const executor = early_.load(std::memory_order_acquire);
  if (news && executor != nullptr) {
    executor->interrupt_waiting();
  }
}

std::vector<policy::ThreadPulse> EngineLoop::pulses() const {
  DeviceExecutor* const executor = early_.load(std::memory_order_acquire);
  if (executor == nullptr) {
    return {};
  }
  executor->interrupt_long_waiting(steady_now());
  return executor->pulses();
}

void EngineLoop::run() {
  (void)::pthread_setname_np(::pthread_self(), "engine");
  if (!hello_.event_log.empty()) {
    Result<std::unique_ptr<EventLog>> log = EventLog::create({.path = hello_.event_log});
    if (!log) {
      outbox_.send({.epoch = hello_.epoch, .body = rpc::HelloAck{.failure = log.error()}});
      return;
    }
    log_ = std::move(*log);
  }
  auto executor = with_threads(hello_.name, [this] { return make_executor(); });
  if (!executor) {
    outbox_.send({.epoch = hello_.epoch, .body = rpc::HelloAck{.failure = executor.error()}});
    return;  // The other side ends the process when it has read that.
  }
  executor_ = std::move(*executor);
  early_.store(executor_.get(), std::memory_order_release);
  outbox_.send({.epoch = hello_.epoch, .body = rpc::HelloAck{}});
  bool idle = false;
  for (;;) {
    if (idle) {
      executor_->pulse().end();
    }
    std::vector<Input> inputs = idle ? inbox_.wait() : inbox_.take();
    executor_->pulse().begin(policy::Doing::kWork);
    idle = false;
    if (!inputs.empty()) {
      for (Input& input : inputs) {
        take_in(std::move(input));
      }
      continue;  // A step begins only when nothing is left to hear.
    }
    // Who does not take tokens gets no more of them; Relieved comes when those are gone.
    idle = outbox_.backlogged() || !step();
  }
}

Result<std::unique_ptr<DeviceExecutor>> EngineLoop::make_executor() {
  return DeviceExecutor::create(
      *device_,
      {.pages = hello_.pages,
       .kv_pages = hello_.kv_pages,
       .load_bandwidth = hello_.load_bandwidth,
       .max_batch_tokens = hello_.step.max_batch_tokens,
       .prefix_cache = hello_.prefix_cache > 0,
       .pace = hello_.pace,
       .guests = &guests_},
      {.on_event = [this](core::WorkerEvent event) { push(std::move(event)); },
       .on_compiled = [this](core::SequenceId id) { push(Compiled{id}); },
       .on_report = [this](core::WorkerReport said) { report(std::move(said)); },
       .on_kv_ask =
           [this](rpc::KvAsk ask) {
             outbox_.send({.epoch = hello_.epoch, .body = std::move(ask)});
           },
       .has_news = [this] { return inbox_.has(&is_news); },
       .on_lost = [](const Error& error) { give_up(error); }});
}

void EngineLoop::take_in(Input input) {
  if (auto* event = std::get_if<core::WorkerEvent>(&input)) {
    if (const auto* closed = std::get_if<core::ModelClosed>(event)) {
      executor_->finish_close(closed->model);
    }
    tell_core(std::move(*event));
  } else if (auto* heard = std::get_if<Heard>(&input)) {
    core::grow_older(heard->message, steady_now() - heard->at);
    take_in(std::move(heard->message));
  } else if (const auto* model = std::get_if<rpc::ModelDescription>(&input)) {
    executor_->describe(*model);
  } else if (auto* lockstep = std::get_if<std::unique_ptr<Lockstep>>(&input)) {
    std::vector<core::WorkerEvent> said;
    executor_->join(std::move(*lockstep), said);
    tell_core(std::move(said));
  } else if (auto* peer = std::get_if<Peer>(&input)) {
    executor_->meet(std::move(*peer));
  } else if (const auto* host = std::get_if<GuestHost>(&input)) {
    executor_->meet(*host);
  } else if (const auto* memory = std::get_if<GuestMemory>(&input)) {
    executor_->map(*memory);
  } else if (const auto* compiled = std::get_if<Compiled>(&input)) {
    std::vector<core::WorkerEvent> said;
    executor_->finish_add(compiled->sequence, said);
    tell_core(std::move(said));
  } else if (auto* pipe = std::get_if<std::unique_ptr<Pipe>>(&input)) {
    std::vector<core::WorkerEvent> said;
    executor_->join(std::move(*pipe), said);
    tell_core(std::move(said));
  } else if (const auto* from = std::get_if<FromStage>(&input)) {
    std::vector<core::WorkerEvent> said;
    if (const auto done = executor_->hear_stage(from->pipe, from->payload, said); !done) {
      give_up(done.error());
    }
    tell_core(std::move(said));
  } else if (const auto* gone = std::get_if<StageGone>(&input)) {
    std::vector<core::WorkerEvent> said;
    executor_->leave_pipe(gone->pipe, said);
    tell_core(std::move(said));
  } else if (const auto* ask = std::get_if<rpc::KvAsk>(&input)) {
    give_kv(*ask);
  } else if (auto* given = std::get_if<rpc::KvGiven>(&input)) {
    std::vector<core::WorkerEvent> said;
    if (const auto done = executor_->hear_kv(std::move(*given), said); !done) {
      give_up(done.error());
    }
    tell_core(std::move(said));
  } else if (auto* followed = std::get_if<Followed>(&input)) {
    std::vector<core::WorkerEvent> said;
    const Result<void> done =
        executor_->follow(followed->shard, std::move(followed->command), said);
    if (!done) {
      give_up(done.error());
    }
    tell_core(std::move(said));
  }
}

void EngineLoop::give_kv(const rpc::KvAsk& ask) {
  Result<rpc::KvGiven> given = executor_->give_kv(ask);
  if (!given) {
    give_up(given.error());
  }
  outbox_.send({.epoch = hello_.epoch, .body = std::move(*given)});
}

/// What another device lends and this one cannot use goes back without a word to the core.
void EngineLoop::take_in(core::WorkerMessage message) {
  if (auto* lend = std::get_if<core::LendGuests>(&message)) {
    if (std::optional<Error> failure = executor_->refuse(*lend)) {
      report(core::GuestsReturned{
          .model = lend->model, .pages = std::move(lend->pages), .failure = std::move(failure)});
      return;
    }
  }
  tell_core(std::move(message));
}

void EngineLoop::decide(const core::WorkerEvent& event,
                        std::vector<core::WorkerCommand>& commands) {
  const Instant now = steady_now();
  core_.step(now, event, commands);
  if (log_ != nullptr) {
    log_->write(core::log_entry(now, event, commands));
  }
}

void EngineLoop::tell_core(core::WorkerEvent event) {
  std::vector<core::WorkerEvent> events;
  events.push_back(std::move(event));
  std::vector<core::WorkerCommand> commands;
  for (std::size_t i = 0; i < events.size(); ++i) {
    commands.clear();
    decide(events[i], commands);
    carry_out(commands, events);
  }
}

void EngineLoop::tell_core(std::vector<core::WorkerEvent> events) {
  for (core::WorkerEvent& event : events) {
    tell_core(std::move(event));
  }
}

bool EngineLoop::step() {
  std::vector<core::WorkerCommand> commands;
  decide(core::EngineIdle{}, commands);
  std::vector<core::WorkerEvent> events;
  carry_out(commands, events);
  const bool stepped = !events.empty();
  tell_core(std::move(events));
  return stepped;
}

void EngineLoop::carry_out(std::vector<core::WorkerCommand>& commands,
                           std::vector<core::WorkerEvent>& events) {
  for (core::WorkerCommand& command : commands) {
    if (const Result<void> done = executor_->carry_out(std::move(command), events); !done) {
      give_up(done.error());
    }
  }
  executor_->count_kv(events);
}

void EngineLoop::report(core::WorkerReport report) {
  auto* const device = std::get_if<core::DeviceReport>(&report);
  const bool of_device = device != nullptr;
  const rpc::WorkerStats stats = of_device ? executor_->stats() : rpc::WorkerStats{};
  if (of_device) {
    name_adapters(stats.adapters, *device);
  }
  if (const auto* moved = std::get_if<core::KvMoved>(&report)) {
    log::info("a request goes on here with KV that was computed elsewhere",
              {{"kv_tokens", moved->tokens}, {"computed_again", moved->computed}});
  }
  outbox_.send({.epoch = hello_.epoch, .body = std::move(report)});
  if (of_device && !(stats == told_)) {
    told_ = stats;
    outbox_.send({.epoch = hello_.epoch, .body = stats});
  }
}

/// A report tells which adapters of its models are there, which the core does not know.
void EngineLoop::name_adapters(const std::vector<core::AdapterStatus>& adapters,
                               core::DeviceReport& report) {
  for (core::ResidentReport& model : report.models) {
    for (const core::AdapterStatus& adapter : adapters) {
      if (adapter.model == model.model && adapter.pages > 0 && !adapter.name.empty()) {
        model.adapters.push_back(adapter.name);
      }
    }
  }
}

/// A lost device fails for every thread that uses it. The first that notices says so.
void EngineLoop::give_up(const Error& error) {
  static std::atomic_flag said;
  while (said.test_and_set()) {
    ::pause();  // The process is about to end.
  }
  log::error("device lost", {{"error", error.message}});
  log::flush();
  std::_Exit(EXIT_FAILURE);
}

}  // namespace heddle::worker
