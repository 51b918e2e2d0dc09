#include "solo/system.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "core/manager/events.h"
#include "host/configured_host.h"
#include "manager/load_records.h"
#include "manager/loop_lag.h"
#include "manager/manager.h"
#include "manager/setup.h"
#include "serving/front.h"

namespace heddle::solo {

namespace asio = boost::asio;

namespace {

constexpr HostId kHost{0};
constexpr FrontId kFront{0};

}  // namespace

class System::Impl final : public serving::HostsPort {
 public:
  Impl(asio::any_io_executor executor, config::Config config, Metrics& metrics)
      : executor_(std::move(executor)), config_(std::move(config)), lag_(executor_, metrics) {}

  Result<void> begin(Metrics& metrics) {
    auto host = host::ConfiguredHost::create(
        executor_,
        config_,
        {.id = kHost},
        {.on_event = [this](core::ManagerEvent event) { hear_host(std::move(event)); },
         .on_tokens =
             [this](DeviceId device, WorkerEpoch epoch, std::vector<core::TokenEvent> tokens) {
               front_->accept({.device = device, .epoch = epoch}, std::move(tokens));
             },
         .on_told = [this](DeviceId device, ModelId model) { manager_->told(device, model); },
         .silent_since = [this](ModelId model) { return front_->silent_since(model); }});
    if (!host) {
      return host.error();
    }
    host_ = std::move(*host);
    auto manager = manager::Manager::create(executor_, config_, metrics, loads_);
    if (!manager) {
      return manager.error();
    }
    manager_ = std::move(*manager);
    front_ = std::make_unique<serving::Front>(executor_, *manager_, *this, metrics);
    manager_->add_host(kHost, *host_, host_->facts());
    manager_->add_front(kFront, *front_);
    host_->on_offers([this](const std::vector<host::Offer>& offers) {
      manager_->configure(config_, {{kHost, offers}});
      if (on_models_) {
        on_models_();
      }
    });
    manager_->configure(config_, {{kHost, host_->open(config_)}});
    host_->start();
    manager_->preload();
    return {};
  }

  void reconfigure(const config::Config& config, std::function<void(Result<void>)> done) {
    for (const Result<void>& possible :
         {host::check_reload(config_, config), manager::check_reload(config_, config)}) {
      if (!possible) {
        asio::post(executor_, [done = std::move(done), possible] { done(possible); });
        return;
      }
    }
    host_->open_later(
        config, [this, config, done = std::move(done)](const std::vector<host::Offer>& offers) {
          config_ = config;
          manager_->configure(config_, {{kHost, offers}});
          done({});
        });
  }

  void on_models(std::function<void()> handler) { on_models_ = std::move(handler); }
  [[nodiscard]] std::shared_ptr<host::ModelFiles> files() const { return host_->files(); }

  [[nodiscard]] Instant began() const { return began_; }
  /// Not within the caller's call.
  void soon(std::function<void()> act) { asio::post(executor_, std::move(act)); }
  [[nodiscard]] manager::Manager& manager() const { return *manager_; }
  [[nodiscard]] serving::Front& front() const { return *front_; }
  [[nodiscard]] host::ConfiguredHost& host() const { return *host_; }

  void send(const serving::Place& place, core::WorkerMessage message) override {
    host_->send(place.device, place.epoch, std::move(message));
  }
  [[nodiscard]] Result<core::EngineRoute> engine_route(ModelId model,
                                                       DeviceId /*device*/) const override {
    if (const std::optional<HttpAddress> address = host_->engine_address(model)) {
      return core::EngineRoute{.model = model, .host = kHost, .address = *address};
    }
    return Error{.code = Code::kNotFound,
                 .message = "forward to the engine of model " + std::to_string(model.value()) +
                            ": it is not configured now"};
  }

 private:
  /// What concerns requests the front hears first, as it knows where they are; but for the end of a
  /// worker, as the core would send it requests until it has heard.
  void hear_host(core::ManagerEvent event) {
    if (const auto* down = std::get_if<core::WorkerDown>(&event)) {
      const serving::Place place{.device = down->device, .epoch = down->epoch};
      manager_->heard(std::move(event));
      front_->lose(place);
      return;
    }
    if (const auto* said = std::get_if<core::WorkerSaid>(&event)) {
      if (!accept(*said)) {
        return;
      }
    } else if (const auto* engine = std::get_if<core::EngineSaid>(&event)) {
      if (engine->news == core::EngineNews::kLost) {
        front_->lose_engine(engine->model, engine->reason);
      } else if (engine->news == core::EngineNews::kSuspended) {
        front_->note_engine(engine->model, core::IncidentKind::kSuspended);
      } else if (engine->news == core::EngineNews::kServing) {
        front_->note_engine(engine->model, core::IncidentKind::kAwoken);
      }
    }
    manager_->heard(std::move(event));
  }

  /// Whether the manager is to hear it, too.
  [[nodiscard]] bool accept(const core::WorkerSaid& said) {
    const serving::Place from{.device = said.device, .epoch = said.epoch};
    if (const auto* returned = std::get_if<core::RequestReturned>(&said.report)) {
      return front_->accept(from, *returned);
    }
    if (const auto* failed = std::get_if<core::RequestFailed>(&said.report)) {
      return front_->accept(from, *failed);
    }
    return true;
  }

  asio::any_io_executor executor_;
  config::Config config_;
  const Instant began_ = steady_now();
  std::function<void()> on_models_{};
  manager::LoadRecords loads_{};
  manager::LoopLag lag_;
  std::unique_ptr<manager::Manager> manager_{};
  std::unique_ptr<serving::Front> front_{};
  std::unique_ptr<host::ConfiguredHost> host_{};  ///< Ends first: it speaks to both.
};

Result<std::unique_ptr<System>> System::create(const asio::any_io_executor& executor,
                                               const config::Config& config,
                                               Metrics& metrics) {
  auto impl = std::make_unique<Impl>(executor, config, metrics);
  if (const Result<void> begun = impl->begin(metrics); !begun) {
    return begun.error();
  }
  return std::unique_ptr<System>(new System(std::move(impl)));
}

System::System(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
System::~System() = default;

void System::on_models(std::function<void()> handler) {
  impl_->on_models(std::move(handler));
}
std::shared_ptr<host::ModelFiles> System::files() const {
  return impl_->files();
}
void System::reconfigure(const config::Config& config, std::function<void(Result<void>)> done) {
  impl_->reconfigure(config, std::move(done));
}
void System::find_adapter(const std::string& model,
                          std::vector<std::string> folders,
                          std::string named,
                          std::function<void(Result<std::string>)> done) {
  impl_->host().find_adapter(model, std::move(folders), std::move(named), std::move(done));
}
void System::drain(Instant deadline, std::function<void()> done) {
  impl_->manager().drain(deadline, std::move(done));
}
void System::start(std::shared_ptr<core::RequestRecord> record,
                   std::shared_ptr<core::RequestSink> sink) {
  impl_->front().start(std::move(record), std::move(sink));
}
void System::finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) {
  impl_->front().finish_choice(request, choice, reason);
}
void System::cancel(RequestId request) {
  impl_->front().cancel(request);
}
void System::start_external(std::shared_ptr<core::ExternalRequest> request,
                            std::shared_ptr<core::ExternalSink> sink) {
  impl_->front().start_external(std::move(request), std::move(sink));
}
void System::finish_external(RequestId request) {
  impl_->front().finish_external(request);
}
void System::retry_external(RequestId request, bool cut) {
  impl_->front().retry_external(request, cut);
}
void System::load(ModelId model, std::function<void(Result<void>)> done) {
  impl_->manager().load(model, std::move(done));
}
void System::unload(ModelId model,
                    core::EvictionReason why,
                    std::function<void(Result<void>)> done) {
  impl_->manager().unload(model, why, std::move(done));
}
std::vector<core::HostEntry> System::hosts() const {
  return {{.id = kHost,
           .name = asio::ip::host_name(),
           .presence = core::HostPresence::kHere,
           .since = impl_->began(),
           .isa = impl_->host().facts().isa}};
}
void System::leave(HostId /*host*/, bool /*leaving*/, std::function<void(Result<void>)> done) {
  impl_->soon([done = std::move(done)] {
    done(Error{.code = Code::kFailedPrecondition,
               .message = "there is no other host that could take over; SIGTERM has the server let "
                          "its requests end"});
  });
}
void System::apply(std::string /*configuration*/,
                   bool /*dry_run*/,
                   std::function<void(Result<void>)> done) {
  impl_->soon([done = std::move(done)] {
    done(Error{.code = Code::kFailedPrecondition,
               .message = "this server is no cluster: change its configuration file, and send it "
                          "SIGHUP"});
  });
}
std::vector<core::ModelStatus> System::models() const {
  return impl_->manager().models();
}
std::vector<core::DeviceStatus> System::devices() const {
  return impl_->manager().devices();
}
ledger::PoolUsage System::host_usage() const {
  return impl_->manager().host_usage();
}
std::vector<core::EngineStatus> System::engines() const {
  return impl_->manager().engines();
}
std::vector<core::NotedDecision> System::decisions() const {
  return impl_->manager().decisions();
}
std::vector<std::string> System::troubles() const {
  return impl_->manager().troubles();
}
rpc::WorkerStats System::worker_stats(DeviceId device) const {
  return impl_->host().worker_stats(device);
}
int System::worker_pid(DeviceId device) const {
  return impl_->host().worker_pid(device);
}

}  // namespace heddle::solo
