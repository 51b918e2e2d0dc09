#include "manager/manager.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "agent/agent.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/codec.h"
#include "core/hearing.h"
#include "core/manager/manager_core.h"
#include "external/engine_host.h"
#include "manager/core_logs.h"
#include "manager/decision_log.h"
#include "manager/device_counts.h"
#include "manager/external_requests.h"
#include "manager/gpu_watch.h"
#include "manager/lent_pages.h"
#include "manager/load_records.h"
#include "manager/loop_lag.h"
#include "manager/model_registry.h"
#include "manager/request_table.h"
#include "manager/setup.h"
#include "manager/switch_times.h"
#include "manager/tickets.h"

namespace heddle::manager {

namespace asio = boost::asio;

class Manager::Impl : public std::enable_shared_from_this<Manager::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, config::Config config, Metrics& metrics)
      : executor_(executor),
        config_(std::move(config)),
        metrics_(metrics),
        timer_(executor),
        lag_(executor, metrics) {}

  Result<void> begin() {
    const std::int64_t batch_tokens = choose_batch_tokens(config_);
    Result<agent::AgentSetup> setup = agent_setup(config_, batch_tokens);
    if (!setup) {
      return setup.error();
    }
    geometry_ = {.page_bytes = setup->page_bytes, .max_batch_tokens = batch_tokens};
    if (const Result<void> logging = logs_.open(config_.event_log); !logging) {
      return logging.error();
    }
    // First: what an earlier run left of engines may hold the memory that the arena is to have.
    external::EngineHost::Handlers engine_handlers{
        .on_event = [this](core::ManagerEvent event) { hear_engines(std::move(event)); },
        .on_borrow = [this](const core::Borrow& borrow) { agent_->carry_out(borrow); },
        .on_repay = [this](const core::Repay& repay) { agent_->carry_out(repay); },
        .silent_since = [this](ModelId model) { return external_.silent_since(model); }};
    if (logs_.engines() != nullptr) {
      engine_handlers.on_step = [this](Instant at, const auto& event, const auto& commands) {
        logs_.engines()->write(core::log_entry(at, event, commands));
      };
    }
    engines_ = std::make_unique<external::EngineHost>(
        executor_, engine_host_setup(config_), std::move(engine_handlers));
    agent::Agent::Handlers handlers{
        .on_event = [this](core::ManagerEvent event) { hear_agent(std::move(event)); },
        .on_tokens = [this](const auto& tokens) { accept(tokens); },
        .on_told = [this](DeviceId device,
                          ModelId model) { switches_.told(device, model, steady_now()); },
        .on_loan =
            [this](ModelId model, const Result<void>& loan) {
              loan ? engines_->grant(model) : engines_->refuse(model, loan.error());
            },
        .on_repaid = [this](ModelId model) { engines_->repaid(model); }};
    if (logs_.agent() != nullptr) {
      handlers.on_step = [this](Instant at, const auto& event, const auto& commands) {
        logs_.agent()->write(core::log_entry(at, event, commands));
      };
    }
    auto agent = agent::Agent::create(executor_, std::move(*setup), std::move(handlers));
    if (!agent) {
      return agent.error();
    }
    agent_ = std::move(*agent);
    loads_.open(config_.data_dir, config_.planner.window, config_.planner.day);
    take_over(open_models(config_, geometry_));
    agent_->start();
    preload();
    return {};
  }

  void reconfigure(const config::Config& config, std::function<void(Result<void>)> done) {
    if (const Result<void> possible = check_reload(config_, config); !possible) {
      asio::post(executor_, [done = std::move(done), possible] { done(possible); });
      return;
    }
    asio::post(opener_,
               [weak = weak_from_this(), config, geometry = geometry_, done, executor = executor_] {
                 asio::post(executor,
                            [weak, config, done, models = open_models(config, geometry)]() mutable {
                              if (const std::shared_ptr<Impl> self = weak.lock()) {
                                self->config_ = config;
                                self->take_over(std::move(models));
                                done({});
                              }
                            });
               });
  }

  void drain(Instant deadline, std::function<void()> done) {
    drained_ = std::move(done);
    hear_soon(core::DrainManager{.deadline = deadline});
  }

  void start(std::shared_ptr<core::RequestRecord> record, std::shared_ptr<core::RequestSink> sink) {
    if (record->times.arrived == Instant{}) {
      record->times.arrived = steady_now();
    }
    core::RequestArrived arrived{.request = record->id,
                                 .model = record->model,
                                 .priority = record->priority,
                                 .prompt_tokens = std::ssize(record->prompt),
                                 .open_ended = record->open_ended,
                                 .deadline = record->deadline};
    // What the client may have is bounded by the device's memory as it is by the context: an answer
    // that reaches either ends with "length". A prompt that leaves no room is the core's to refuse.
    const std::int64_t room =
        std::max<std::int64_t>(core_.tokens_max(record->model) - arrived.prompt_tokens, 1);
    for (spec::SamplingParams& choice : record->choices) {
      choice.max_tokens = std::min(choice.max_tokens, room);
      arrived.max_tokens = std::max(arrived.max_tokens, choice.max_tokens);
    }
    requests_.add(std::move(record), std::move(sink));
    const ConfiguredModel* model = registry_.find(arrived.model);
    if (model != nullptr && model->failure()) {
      soon([request = arrived.request, error = *model->failure()](Impl& self) {
        self.fail(request, error);
      });
      return;
    }
    hear_soon(arrived);
  }

  void start_external(std::shared_ptr<core::ExternalRequest> request,
                      std::shared_ptr<core::ExternalSink> sink) {
    if (request->times.arrived == Instant{}) {
      request->times.arrived = steady_now();
    }
    const core::RequestArrived arrived{.request = request->id,
                                       .model = request->model,
                                       .priority = request->priority,
                                       .deadline = request->deadline};
    external_.add(std::move(request), std::move(sink));
    hear(arrived);
  }

  void finish_external(RequestId request) {
    if (const auto entry = external_.remove(request)) {
      entry->request->times.finished = steady_now();
      hear(core::RequestFinished{.request = request, .ttft = entry->request->times.ttft()});
    }
  }

  void retry_external(RequestId request) {
    ExternalRequests::Entry* entry = external_.find(request);
    if (entry != nullptr && entry->forwarded) {
      entry->forwarded = false;
      ++entry->request->restarts;
      hear_soon(core::RequestUnanswered{.request = request});
    }
  }

  void finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) {
    RequestTable::Entry* entry = requests_.find(request);
    if (entry == nullptr || choice >= entry->record->finished.size() ||
        entry->record->finished[choice] != spec::FinishReason::kNone) {
      return;
    }
    entry->record->finished[choice] = reason;
    if (entry->place.has_value()) {
      agent_->send(entry->place->device,
                   entry->place->epoch,
                   core::FinishChoice{.request = request, .choice = choice});
    }
    if (RequestTable::complete(*entry->record)) {
      entry->record->times.finished = steady_now();
      soon([done = *requests_.remove(request)](Impl& self) { self.finish(done); });
    }
  }

  void cancel(RequestId request) {
    if (requests_.remove(request).has_value() || external_.remove(request).has_value()) {
      hear_soon(core::RequestCancelled{.request = request});
    }
  }

  void load(ModelId model, std::function<void(Result<void>)> done) {
    const core::TicketId ticket = tickets_.open(std::move(done));
    const ConfiguredModel* known = registry_.find(model);
    if (known != nullptr && known->failure()) {
      soon(
          [ticket, error = *known->failure()](Impl& self) { self.tickets_.answer(ticket, error); });
      return;
    }
    hear_soon(core::AdminLoad{.ticket = ticket, .model = model});
  }

  void unload(ModelId model, core::EvictionReason why, std::function<void(Result<void>)> done) {
    const core::TicketId ticket = tickets_.open(std::move(done));
    const ConfiguredModel* known = registry_.find(model);
    if (known != nullptr && known->failure()) {
      soon([ticket](Impl& self) { self.tickets_.answer(ticket, std::nullopt); });
      return;
    }
    hear_soon(core::AdminUnload{.ticket = ticket, .model = model, .why = why});
  }

  [[nodiscard]] std::vector<core::ModelStatus> models() const {
    return registry_.statuses(core_.models());
  }

  [[nodiscard]] std::vector<core::DeviceStatus> devices() const {
    std::vector<core::DeviceStatus> all = core_.devices();
    for (core::DeviceStatus& device : all) {
      add_counts(*agent_, device);
      add_lent(*engines_, device);
      device.others_bytes = gpus_.others_bytes(device.id, device.up);
    }
    return all;
  }

  [[nodiscard]] std::vector<core::NotedDecision> decisions() const { return decisions_.all(); }
  [[nodiscard]] auto troubles() const { return troubles_of(*agent_, *engines_); }
  [[nodiscard]] const agent::Agent& agent() const { return *agent_; }
  [[nodiscard]] const external::EngineHost& engines() const { return *engines_; }

 private:
  [[nodiscard]] const std::string& device_name(DeviceId device) const {
    return config_.devices.at(device.value()).name;
  }

  // ---- Events in ----

  void hear(core::ManagerEvent event) {
    hearing_.hear(
        core_,
        std::move(event),
        steady_now,
        [this](Instant at, const auto& heard, const auto& commands) {
          if (logs_.manager() != nullptr) {
            logs_.manager()->write(core::log_entry(at, heard, commands));
          }
        },
        [this](auto& command) { execute(command); });
  }

  /// From the loop rather than from here: the caller must not hear of it within its call.
  template <class What>
  void soon(What what) {
    asio::post(executor_, [weak = weak_from_this(), what = std::move(what)] {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        what(*self);
      }
    });
  }
  void hear_soon(core::ManagerEvent event) {
    soon([event = std::move(event)](Impl& self) { self.hear(event); });
  }

  void hear_agent(core::ManagerEvent event) {
    if (auto* down = std::get_if<core::WorkerDown>(&event)) {
      down->advanced = requests_.lose(down->device, down->epoch);
    } else if (const auto* image = std::get_if<core::ImageState>(&event)) {
      tell_loading(*image);
    } else if (const auto* said = std::get_if<core::WorkerSaid>(&event)) {
      if (const auto* serving = std::get_if<core::ModelServing>(&said->report)) {
        count_switch(said->device, serving->model);
      }
    }
    hear(std::move(event));
  }

  void hear_engines(core::ManagerEvent event) {
    if (const auto* said = std::get_if<core::EngineSaid>(&event)) {
      if (said->news == core::EngineNews::kLost) {
        for (const ExternalRequests::Entry& entry : external_.lose(said->model)) {
          entry.sink->on_lost(said->reason);
        }
      } else if (said->news == core::EngineNews::kServing) {
        count_switch(said->device, said->model);
      }
    }
    hear(std::move(event));
  }

  /// Loads what is to be there before anybody asks for it. Engines that do not fit together are
  /// started one after the other; each is suspended when the next needs its memory.
  void preload() {
    for (const ModelId id : to_preload(config_, registry_.models())) {
      load(id, [name = registry_.name(id)](const Result<void>& done) {
        if (!done) {
          log::warning("model not preloaded", {{"model", name}, {"error", done.error().message}});
        }
      });
    }
  }

  void count_switch(DeviceId device, ModelId model) {
    const std::optional<SwitchPhases> phases = switches_.serves(device, model, steady_now());
    const ConfiguredModel* known = registry_.find(model);
    if (!phases || known == nullptr) {
      return;
    }
    publish(*phases, known->config.id, metrics_);
  }

  /// Tells who waits for a model how far it is.
  void tell_loading(const core::ImageState& image) {
    const ConfiguredModel* model = registry_.find(image.model);
    if (model == nullptr || !model->host) {
      return;
    }
    for (const std::shared_ptr<core::RequestSink>& sink : requests_.held_for(image.model)) {
      sink->on_loading(image.bytes, model->host->image_bytes);
    }
  }

  void accept(const std::vector<core::TokenEvent>& tokens) {
    for (const RequestTable::Entry& done : requests_.accept(tokens, steady_now())) {
      finish(done);
    }
  }

  void finish(const RequestTable::Entry& done) {
    done.sink->on_done();
    hear(RequestTable::report(*done.record));
  }

  void fail(RequestId request, const Error& error) {
    if (const std::optional<ExternalRequests::Entry> entry = external_.remove(request)) {
      entry->request->times.finished = steady_now();
      entry->sink->on_error(error);
      return;
    }
    if (const std::optional<RequestTable::Entry> entry = requests_.remove(request)) {
      entry->record->times.finished = steady_now();
      entry->sink->on_error(error);
    }
  }

  void take_over(std::vector<ConfiguredModel> models) {
    registry_.assign(std::move(models));
    std::vector<agent::HostModel> hosted;
    for (const ConfiguredModel& model : registry_.models()) {
      if (model.external()) {
        continue;
      }
      if (!model.host) {
        log::error("model cannot be served",
                   {{"model", model.config.id}, {"error", model.host.error().message}});
        continue;
      }
      hosted.push_back(*model.host);
      hosted.insert(hosted.end(), model.shards.begin(), model.shards.end());
      for (const std::string& name : model.host->unused) {
        log::warning("tensor that nothing reads", {{"model", model.config.id}, {"tensor", name}});
      }
    }
    agent_->set_models(hosted);
    engines_->set_engines(engines_setup(config_, registry_.models()),
                          hosted_engines(config_, registry_.models()));
    configure();
    for (const ConfiguredModel& model : registry_.models()) {
      if (auto remembered = loads_.recall(model.config.id, model.id)) {
        hear(std::move(*remembered));
      }
    }
  }

  void configure() { hear(core_setup(config_, registry_.models(), loads_.take_clock_offset())); }

  // ---- Commands out ----

  void execute(const core::LoadOn& order) {
    const bool external = engines_->hosts(order.model);
    const std::optional<Instant> wanted =
        external ? external_.waits_since(order.model) : requests_.waits_since(order.model);
    switches_.ordered(order.device, order.model, steady_now(), wanted);
    if (external) {
      switches_.told(order.device, order.model, steady_now());
      engines_->carry_out(order);
    } else {
      agent_->carry_out(order);
    }
  }
  void execute(const core::EvictFrom& order) {
    engines_->hosts(order.model) ? engines_->carry_out(order) : agent_->carry_out(order);
  }
  void execute(const core::FormGroup& form) { agent_->carry_out(form); }
  void execute(const core::Weave& order) { agent_->carry_out(order); }
  void execute(const core::Unweave& order) { agent_->carry_out(order); }

  void execute(const core::Dispatch& command) {
    if (ExternalRequests::Entry* entry = external_.find(command.request)) {
      forward(*entry, command.device);
      return;
    }
    RequestTable::Entry* entry = requests_.find(command.request);
    if (entry == nullptr) {
      return;  // Cancelled; the core hears of it next.
    }
    const Instant now = steady_now();
    entry->send_to(command.device, command.epoch);
    entry->record->times.note_dispatch(now);
    entry->record->device = command.device;
    for (spec::SamplingParams& choice : entry->record->choices) {
      choice.max_tokens =
          std::min(choice.max_tokens, command.tokens - std::ssize(entry->record->prompt));
    }
    agent_->send(
        command.device, command.epoch, RequestTable::submission(*entry->record, command.due, now));
  }

  void execute(const core::Hold& command) {
    if (ExternalRequests::Entry* entry = external_.find(command.request)) {
      entry->held = true;
      entry->request->times.note_load(steady_now());
      std::shared_ptr(entry->sink)->on_waiting(Duration{});
      return;
    }
    RequestTable::Entry* entry = requests_.find(command.request);
    if (entry == nullptr) {
      return;
    }
    entry->held = true;
    entry->record->times.note_load(steady_now());
    const ConfiguredModel* model = registry_.find(entry->record->model);
    entry->sink->on_loading(0, model != nullptr && model->host ? model->host->image_bytes : 0);
  }

  /// The engine runs: its request's exchange may begin.
  void forward(ExternalRequests::Entry& entry, DeviceId device) {
    entry.forwarded = true;
    entry.request->heard = steady_now();
    entry.request->times.note_dispatch(entry.request->heard);
    entry.request->device = device;
    std::shared_ptr(entry.sink)->on_ready(engines_->address(entry.request->model).value());
  }

  void execute(const core::TellWorker& command) {
    agent_->send(command.device, command.epoch, command.message);
  }
  void execute(const core::FailRequest& command) {
    log::info("request failed", {{"request", command.request}, {"error", command.error.message}});
    fail(command.request, command.error);
  }

  void execute(const core::Decision& decision) {
    decisions_.note({.at = steady_now(),
                     .kind = decision.kind,
                     .model = registry_.name(decision.model),
                     .device = decision.device ? device_name(*decision.device) : "",
                     .for_model = decision.for_model ? registry_.name(*decision.for_model) : "",
                     .why = decision.why});
  }

  void execute(const core::LoadMeasured& measured) {
    loads_.note(registry_.name(measured.model), measured.window, measured.load);
    if (loads_.clock_moved()) {
      configure();  // Windows begin at other times from now on.
    }
  }

  void execute(const core::AdminDone& command) { tickets_.answer(command.ticket, command.error); }

  /// No request is left: the external engines may end in peace, too.
  void execute(const core::Drained& /*command*/) {
    const auto last = std::make_shared<std::function<void()>>(std::exchange(drained_, nullptr));
    const std::shared_ptr<void> all_ended(nullptr, [last](void* /*none*/) {
      if (*last) {
        (*last)();
      }
    });
    for (const core::EngineStatus& engine : engines_->engines()) {
      if (engine.state != core::EngineState::kStopped) {
        unload(engine.model, core::EvictionReason::kOperator, [all_ended](const auto& /*done*/) {});
      }
    }
  }

  void execute(const core::WakeAt& command) {
    timer_.expires_at(std::chrono::steady_clock::time_point(command.at.time_since_epoch()));
    timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const std::shared_ptr<Impl> self = weak.lock();
      if (!error && self != nullptr) {
        self->hear(core::Tick{});
      }
    });
  }

  asio::any_io_executor executor_;
  config::Config config_;
  Metrics& metrics_;
  SwitchTimes switches_{};
  agent::HostGeometry geometry_{};
  core::ManagerCore core_{};
  ModelRegistry registry_{};
  RequestTable requests_{};
  ExternalRequests external_{};
  Tickets tickets_{};
  std::function<void()> drained_{};
  core::Hearing<core::ManagerCore, core::ManagerEvent, core::ManagerCommand> hearing_{};
  asio::steady_timer timer_;
  LoopLag lag_;
  CoreLogs logs_{};
  DecisionLog decisions_{};
  LoadRecords loads_{};
  std::unique_ptr<agent::Agent> agent_{};
  std::unique_ptr<external::EngineHost> engines_{};
  GpuWatch gpus_{config_};
  asio::thread_pool opener_{1};  ///< Reads the models of a new configuration, off the loop.
};

Result<std::unique_ptr<Manager>> Manager::create(const asio::any_io_executor& executor,
                                                 const config::Config& config,
                                                 Metrics& metrics) {
  auto impl = std::make_shared<Impl>(executor, config, metrics);
  if (const Result<void> begun = impl->begin(); !begun) {
    return begun.error();
  }
  return std::unique_ptr<Manager>(new Manager(std::move(impl)));
}

Manager::Manager(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Manager::~Manager() = default;

void Manager::reconfigure(const config::Config& config, std::function<void(Result<void>)> done) {
  impl_->reconfigure(config, std::move(done));
}
void Manager::drain(Instant deadline, std::function<void()> done) {
  impl_->drain(deadline, std::move(done));
}
void Manager::start(std::shared_ptr<core::RequestRecord> record,
                    std::shared_ptr<core::RequestSink> sink) {
  impl_->start(std::move(record), std::move(sink));
}
void Manager::finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) {
  impl_->finish_choice(request, choice, reason);
}
void Manager::cancel(RequestId request) {
  impl_->cancel(request);
}
void Manager::start_external(std::shared_ptr<core::ExternalRequest> request,
                             std::shared_ptr<core::ExternalSink> sink) {
  impl_->start_external(std::move(request), std::move(sink));
}
void Manager::finish_external(RequestId request) {
  impl_->finish_external(request);
}
void Manager::retry_external(RequestId request) {
  impl_->retry_external(request);
}
void Manager::load(ModelId model, std::function<void(Result<void>)> done) {
  impl_->load(model, std::move(done));
}
void Manager::unload(ModelId model,
                     core::EvictionReason why,
                     std::function<void(Result<void>)> done) {
  impl_->unload(model, why, std::move(done));
}
std::vector<core::ModelStatus> Manager::models() const {
  return impl_->models();
}
std::vector<core::DeviceStatus> Manager::devices() const {
  return impl_->devices();
}
std::vector<core::EngineStatus> Manager::engines() const {
  return impl_->engines().engines();
}
std::vector<core::NotedDecision> Manager::decisions() const {
  return impl_->decisions();
}
std::vector<std::string> Manager::troubles() const {
  return impl_->troubles();
}
ledger::PoolUsage Manager::host_usage() const {
  return impl_->agent().host_usage();
}
rpc::WorkerStats Manager::worker_stats(DeviceId device) const {
  return impl_->agent().stats(device);
}
int Manager::worker_pid(DeviceId device) const {
  return impl_->agent().worker_pid(device);
}

}  // namespace heddle::manager
