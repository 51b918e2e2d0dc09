#include "manager/manager.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "core/hearing.h"
#include "core/manager/manager_core.h"
#include "host/core_log.h"
#include "host/host.h"
#include "manager/decision_log.h"
#include "manager/load_records.h"
#include "manager/loop_lag.h"
#include "manager/model_registry.h"
#include "manager/setup.h"
#include "manager/switch_times.h"
#include "manager/tickets.h"
#include "serving/front.h"

namespace heddle::manager {

namespace asio = boost::asio;

class Manager::Impl : public std::enable_shared_from_this<Manager::Impl>,
                      public serving::ManagerPort,
                      public serving::HostsPort {
 public:
  Impl(const asio::any_io_executor& executor, config::Config config, Metrics& metrics)
      : executor_(executor),
        config_(std::move(config)),
        metrics_(metrics),
        front_(executor, *this, *this, metrics),
        timer_(executor),
        lag_(executor, metrics) {}

  Result<void> begin() {
    const std::int64_t batch_tokens = choose_batch_tokens(config_);
    Result<host::HostSetup> setup = host_setup(config_, batch_tokens);
    if (!setup) {
      return setup.error();
    }
    geometry_ = {.page_bytes = setup->agent.page_bytes, .max_batch_tokens = batch_tokens};
    if (const Result<void> logging = log_.open(config_.event_log, "manager"); !logging) {
      return logging.error();
    }
    auto host = host::Host::create(
        executor_,
        std::move(*setup),
        {.on_event = [this](core::ManagerEvent event) { hear_host(std::move(event)); },
         .on_tokens =
             [this](DeviceId device, WorkerEpoch epoch, std::vector<core::TokenEvent> tokens) {
               front_.accept({.device = device, .epoch = epoch}, std::move(tokens));
             },
         .on_told = [this](DeviceId device,
                           ModelId model) { switches_.told(device, model, steady_now()); },
         .silent_since = [this](ModelId model) { return front_.silent_since(model); }});
    if (!host) {
      return host.error();
    }
    host_ = std::move(*host);
    loads_.open(config_.data_dir, config_.planner.window, config_.planner.day);
    take_over(open_models(config_, geometry_));
    host_->start();
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
      host_->describe(device);
    }
    return all;
  }

  [[nodiscard]] std::vector<core::NotedDecision> decisions() const { return decisions_.all(); }
  [[nodiscard]] core::RequestServing& requests() { return front_; }
  [[nodiscard]] const host::HostPort& host() const { return *host_; }

  // ---- What the front has to do with ----

  void tell(const serving::RequestNews& news) override {
    std::visit([this](const auto& said) { hear(said); }, news);
  }
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const override {
    return core_.tokens_max(model);
  }
  void send(const serving::Place& place, core::WorkerMessage message) override {
    host_->send(place.device, place.epoch, std::move(message));
  }
  [[nodiscard]] HttpAddress engine_address(ModelId model) const override {
    return host_->engine_address(model).value();
  }

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
          log_.write(at, heard, commands);
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

  /// What concerns requests the front hears first, as it knows where they are.
  void hear_host(core::ManagerEvent event) {
    if (auto* down = std::get_if<core::WorkerDown>(&event)) {
      down->advanced = front_.lose({.device = down->device, .epoch = down->epoch});
    } else if (const auto* image = std::get_if<core::ImageState>(&event)) {
      front_.tell_loading(image->model, image->bytes);
    } else if (const auto* said = std::get_if<core::WorkerSaid>(&event)) {
      if (!accept(*said)) {
        return;
      }
    } else if (const auto* engine = std::get_if<core::EngineSaid>(&event)) {
      if (engine->news == core::EngineNews::kLost) {
        front_.lose_engine(engine->model, engine->reason);
      } else if (engine->news == core::EngineNews::kServing) {
        count_switch(engine->device, engine->model);
      }
    }
    hear(std::move(event));
  }

  /// Whether the core is to hear it, too.
  [[nodiscard]] bool accept(const core::WorkerSaid& said) {
    const serving::Place from{.device = said.device, .epoch = said.epoch};
    if (const auto* returned = std::get_if<core::RequestReturned>(&said.report)) {
      return front_.accept(from, *returned);
    }
    if (const auto* failed = std::get_if<core::RequestFailed>(&said.report)) {
      return front_.accept(from, *failed);
    }
    if (const auto* serving = std::get_if<core::ModelServing>(&said.report)) {
      count_switch(said.device, serving->model);
    }
    return true;
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

  void take_over(std::vector<ConfiguredModel> models) {
    registry_.assign(std::move(models));
    for (const ConfiguredModel& model : registry_.models()) {
      if (const std::optional<Error> failure = model.failure()) {
        log::error("model cannot be served",
                   {{"model", model.config.id}, {"error", failure->message}});
      } else if (!model.external()) {
        for (const std::string& name : model.host->unused) {
          log::warning("tensor that nothing reads", {{"model", model.config.id}, {"tensor", name}});
        }
      }
    }
    host_->set_models(host_models(config_, registry_.models()));
    front_.set_models(served_models(registry_.models()));
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
    switches_.ordered(order.device, order.model, steady_now(), front_.waits_since(order.model));
    host_->carry_out(order);
  }
  void execute(const core::EvictFrom& order) { host_->carry_out(order); }
  void execute(const core::FormGroup& order) { host_->carry_out(order); }
  void execute(const core::Weave& order) { host_->carry_out(order); }
  void execute(const core::Unweave& order) { host_->carry_out(order); }

  void execute(const core::Dispatch& command) { front_.carry_out(command); }
  void execute(const core::Hold& command) { front_.carry_out(command); }
  void execute(const core::FailRequest& command) { front_.carry_out(command); }

  void execute(const core::TellWorker& command) {
    host_->send(command.device, command.epoch, command.message);
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
    for (const core::EngineStatus& engine : host_->engines()) {
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
  serving::Front front_;
  Tickets tickets_{};
  std::function<void()> drained_{};
  core::Hearing<core::ManagerCore, core::ManagerEvent, core::ManagerCommand> hearing_{};
  asio::steady_timer timer_;
  LoopLag lag_;
  host::CoreLog log_{};
  DecisionLog decisions_{};
  LoadRecords loads_{};
  std::unique_ptr<host::HostPort> host_{};
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
  impl_->requests().start(std::move(record), std::move(sink));
}
void Manager::finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) {
  impl_->requests().finish_choice(request, choice, reason);
}
void Manager::cancel(RequestId request) {
  impl_->requests().cancel(request);
}
void Manager::start_external(std::shared_ptr<core::ExternalRequest> request,
                             std::shared_ptr<core::ExternalSink> sink) {
  impl_->requests().start_external(std::move(request), std::move(sink));
}
void Manager::finish_external(RequestId request) {
  impl_->requests().finish_external(request);
}
void Manager::retry_external(RequestId request) {
  impl_->requests().retry_external(request);
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
  return impl_->host().engines();
}
std::vector<core::NotedDecision> Manager::decisions() const {
  return impl_->decisions();
}
std::vector<std::string> Manager::troubles() const {
  return impl_->host().troubles();
}
ledger::PoolUsage Manager::host_usage() const {
  return impl_->host().host_usage();
}
rpc::WorkerStats Manager::worker_stats(DeviceId device) const {
  return impl_->host().worker_stats(device);
}
int Manager::worker_pid(DeviceId device) const {
  return impl_->host().worker_pid(device);
}

}  // namespace heddle::manager
