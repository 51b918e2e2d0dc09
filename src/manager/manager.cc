#include "manager/manager.h"

#include <deque>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "core/hearing.h"
#include "core/manager/manager_core.h"
#include "host/core_log.h"
#include "manager/decision_log.h"
#include "manager/hosts.h"
#include "manager/load_records.h"
#include "manager/model_registry.h"
#include "manager/setup.h"
#include "manager/switch_times.h"
#include "manager/tickets.h"

namespace heddle::manager {

namespace asio = boost::asio;

namespace {

/// Windows of a model that the core is told of at once; judging so many takes about a millisecond.
constexpr std::size_t kSlice = 128;

/// Of what hosts have, what one of them may ask the others for.
std::vector<host::Holder> holders_beside(HostId host, std::vector<host::Holder> holders) {
  for (host::Holder& holder : holders) {
    std::erase_if(holder.hosts, [host](const core::GroupHost& each) { return each.id == host; });
  }
  std::erase_if(holders, [](const host::Holder& holder) { return holder.hosts.empty(); });
  return holders;
}

}  // namespace

class Manager::Impl : public std::enable_shared_from_this<Manager::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       config::Config config,
       Metrics& metrics,
       LoadRecords& records)
      : executor_(std::move(executor)),
        config_(std::move(config)),
        metrics_(metrics),
        loads_(records),
        timer_(executor_) {}

  Result<void> begin() {
    if (const Result<void> logging = log_.open(config_.event_log, "manager"); !logging) {
      return logging.error();
    }
    loads_.open(config_.data_dir, config_.planner.window, config_.planner.day);
    loads_.on_recall([weak = weak_from_this()](const std::set<std::string>& models) {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        self->recall_soon(models);
      }
    });
    return {};
  }

  void configure(const config::Config& config,
                 const std::map<HostId, std::vector<host::Offer>>& offers) {
    config_ = config;
    for (const auto& [host, offered] : offers) {
      hosts_.offered(host, offered);
    }
    take_over();
  }

  void drain(Instant deadline, std::function<void()> done) {
    drained_ = std::move(done);
    hear_soon(core::DrainManager{.deadline = deadline});
  }

  void load(ModelId model, std::function<void(Result<void>)> done) {
    const ConfiguredModel* known = registry_.find(model);
    if (known != nullptr && known->offers.empty() && !hosts_.ids().empty()) {
      early_.push_back({.model = model, .done = std::move(done)});
      return;
    }
    const core::TicketId ticket = tickets_.open(std::move(done));
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

  /// Engines that do not fit together are started one after the other; each is suspended when the
  /// next needs its memory.
  void preload() {
    for (const ModelId id : to_preload(config_, registry_.models())) {
      load(id, [name = registry_.name(id)](const Result<void>& done) {
        if (!done) {
          log::warning("model not preloaded", {{"model", name}, {"error", done.error().message}});
        }
      });
    }
  }

  // ---- Hosts and fronts ----

  void add_host(HostId host, host::HostPort& port, host::HostFacts facts) {
    registry_.remember(facts.assigned);
    hosts_.add(host, port, std::move(facts));
    peers_told_ = false;
  }

  void lose_host(HostId host) { hear(core::HostLost{.host = host}); }

  void remove_host(HostId host) {
    hear(core::HostLost{.host = host});
    if (hosts_.remove(host)) {
      take_over();
    }
  }

  void offered(HostId host, std::vector<host::Offer> offers) {
    hosts_.offered(host, std::move(offers));
    take_over();
  }

  void heard(core::ManagerEvent event) {
    if (const auto* image = std::get_if<core::ImageState>(&event)) {
      for (const auto& [id, front] : fronts_) {
        front->tell_loading(image->model, image->bytes);
      }
    } else if (const auto* said = std::get_if<core::WorkerSaid>(&event)) {
      if (const auto* serving = std::get_if<core::ModelServing>(&said->report)) {
        count_switch(said->device, serving->model);
      }
    } else if (const auto* engine = std::get_if<core::EngineSaid>(&event)) {
      if (engine->news == core::EngineNews::kServing) {
        count_switch(engine->device, engine->model);
      }
    }
    hear(std::move(event));
  }

  void told(DeviceId device, ModelId model) { switches_.told(device, model, steady_now()); }

  void add_front(FrontId id, serving::FrontPort& port) {
    fronts_[id] = &port;
    port.set_models(served_models(registry_.models()));
  }

  void adopt(core::FrontState front) { hear(std::move(front)); }
  void remove_front(FrontId id) {
    fronts_.erase(id);
    hear(core::FrontState{.front = id});
  }
  void settle(bool settled) {
    hear(core::Settled{.settled = settled});
    settled_ = settled;
    recall_next();
  }

  void tell(const serving::RequestNews& news) {
    count(news);
    std::visit([this](const auto& said) { hear(said); }, news);
  }

  // ---- What there is to see ----

  [[nodiscard]] std::string digest(ModelId model) const {
    const ConfiguredModel* known = registry_.find(model);
    return known == nullptr ? std::string() : known->digest;
  }
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const { return core_.tokens_max(model); }
  [[nodiscard]] std::vector<core::ModelStatus> models() const {
    std::vector<core::ModelStatus> all = registry_.statuses(core_.models());
    const std::map<std::string, core::FetchStatus> fetches = hosts_.fetches();
    for (core::ModelStatus& model : all) {
      if (const auto found = fetches.find(model.name); found != fetches.end()) {
        model.fetch = found->second;
      }
    }
    return all;
  }
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const {
    std::vector<core::DeviceStatus> all = core_.devices();
    hosts_.describe(all);
    return all;
  }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const { return decisions_.all(); }
  [[nodiscard]] const Hosts& hosts() const { return hosts_; }

 private:
  /// A load that an operator asked for before any host has said what it can do about the model.
  struct EarlyLoad {
    ModelId model{};
    std::function<void(Result<void>)> done{};
  };
  /// A model whose past the core is to be told, from this window on.
  struct Recall {
    ModelId model{};
    std::int64_t from = 0;
  };

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

  void count_switch(DeviceId device, ModelId model) {
    const std::optional<SwitchPhases> phases = switches_.serves(device, model, steady_now());
    const ConfiguredModel* known = registry_.find(model);
    if (!phases || known == nullptr) {
      return;
    }
    publish(*phases, known->config.id, metrics_);
  }

  /// Makes of the configuration and of what hosts offer what hosts serve, fronts know and the core
  /// decides about.
  void take_over() {
    std::vector<ConfiguredModel> models;
    std::vector<host::Holder> holders;
    for (const config::ModelConfig& model : config_.models) {
      models.push_back({.config = model, .offers = hosts_.offers_of(model.id)});
      holders.push_back(hosts_.holder(model.id, models.back().offers));
    }
    registry_.assign(std::move(models), hosts_.facts());
    for (const HostId host : hosts_.ids()) {
      hosts_.port(host)->set_models(assignments(registry_.models(), host));
      hosts_.port(host)->set_holders(holders_beside(host, holders));
    }
    for (const auto& [id, front] : fronts_) {
      front->set_models(served_models(registry_.models()));
    }
    configure_core();
    for (EarlyLoad& one : std::exchange(early_, {})) {
      load(one.model, std::move(one.done));
    }
  }

  void configure_core() {
    core::Configure setup =
        core_setup(config_, registry_.models(), hosts_.devices(), loads_.take_clock_offset());
    setup.networks = hosts_.networks();
    std::set<ModelId> before = std::exchange(decided_, {});
    for (const core::ManagerModel& model : setup.models) {
      decided_.insert(model.id);
    }
    hear(std::move(setup));
    for (const ModelId model : decided_) {
      if (!before.contains(model)) {
        recalls_.push_back({.model = model});
      }
    }
    recall_next();
    if (config_.planner.weave && !std::exchange(peers_told_, true)) {
      if (core::GuestPeers peers = hosts_.guest_peers(); !peers.pairs.empty()) {
        hear(std::move(peers));
      }
    }
  }

  // ---- The past ----

  /// What is kept of requests, for who plans (LoadRecords).
  void count(const serving::RequestNews& news) {
    if (const auto* arrived = std::get_if<core::RequestArrived>(&news)) {
      if (const ConfiguredModel* model = registry_.find(arrived->model)) {
        loads_.count_arrival(model->config.id);
      }
    } else if (const auto* ended = std::get_if<core::RequestFinished>(&news)) {
      const ConfiguredModel* model = ended->model ? registry_.find(*ended->model) : nullptr;
      if (model != nullptr && ended->prompt_tokens + ended->answer_tokens > 0) {  // Else not known.
        loads_.count_end(model->config.id, ended->prompt_tokens, ended->answer_tokens);
      }
    }
  }

  void recall_soon(const std::set<std::string>& names) {
    for (const ConfiguredModel& model : registry_.models()) {
      if (names.contains(model.config.id)) {
        recalls_.push_back({.model = model.id});
      }
    }
    recall_next();
  }

  /// Tells the core a slice of what is known of a model's past in each turn of the loop: judging
  /// all forecasts of many days takes long. What is to be decided comes first.
  void recall_next() {
    if (!settled_ || recalls_.empty() || std::exchange(recalling_, true)) {
      return;
    }
    soon([](Impl& self) {
      self.recalling_ = false;
      self.recall_slice();
      self.recall_next();
    });
  }
  void recall_slice() {
    Recall& next = recalls_.front();
    std::optional<core::LoadRemembered> slice;
    const ConfiguredModel* known = registry_.find(next.model);
    if (known != nullptr && known->id == next.model && decided_.contains(next.model)) {
      slice = loads_.recall(known->config.id, next.model, next.from, kSlice);
    }
    if (!slice) {
      recalls_.pop_front();
      return;
    }
    next.from = slice->windows.back().first + 1;
    hear(std::move(*slice));
  }

  // ---- Commands out ----

  /// What goes to the host of the device. One that is not there has lost its devices.
  void order(DeviceId device, const host::HostOrder& order) {
    if (host::HostPort* host = hosts_.port(host_of(device))) {
      host->carry_out(order);
    }
  }
  void execute(core::LoadOn& command) {
    switches_.ordered(
        command.device, command.model, steady_now(), core_.waits_since(command.model));
    std::vector<core::GroupHost> peers;
    for (const core::GroupHost& peer : command.peers) {
      if (std::optional<core::GroupHost> there = hosts_.sharing(peer.id)) {
        peers.push_back(std::move(*there));
      }
    }
    command.peers = std::move(peers);
    order(command.device, command);
  }
  void execute(const core::EvictFrom& command) { order(command.device, command); }
  /// A group over several hosts is formed by all of them, each of which links with the next.
  void execute(core::FormGroup& command) {
    std::set<HostId> ids;
    for (const core::GroupMember& member : command.members) {
      ids.insert(host_of(member.device));
    }
    for (const HostId id : ids) {
      const host::HostPort* host = hosts_.port(id);
      if (std::optional<core::GroupHost> there = host == nullptr ? std::nullopt : host->address();
          there && ids.size() > 1) {
        command.hosts.push_back(std::move(*there));
      }
    }
    for (const HostId id : ids) {
      if (host::HostPort* host = hosts_.port(id)) {
        host->carry_out(command);
      }
    }
  }
  void execute(const core::Weave& command) { order(command.host, command); }
  void execute(const core::Unweave& command) { order(command.host, command); }
  void execute(const core::LimitKv& command) { order(command.device, command); }
  void execute(const core::TellWorker& command) {
    if (host::HostPort* host = hosts_.port(host_of(command.device))) {
      host->send(command.device, command.epoch, command.message);
    }
  }

  template <class Command>
  void tell_front(const Command& command) {
    const auto found = fronts_.find(front_of(command.request));
    if (found != fronts_.end()) {
      found->second->carry_out(command);
    }
  }
  /// Those who have KV of a request are asked by its worker, which has to know where they are.
  void execute(core::Dispatch& command) {
    for (core::KvSource& source : command.kv) {
      std::optional<core::GroupHost> there = hosts_.sharing(host_of(source.device));
      source.host = there ? std::move(*there) : core::GroupHost();
    }
    tell_front(command);
  }
  void execute(const core::Hold& command) { tell_front(command); }
  void execute(const core::FailRequest& command) { tell_front(command); }

  void execute(const core::Decision& decision) {
    decisions_.note({.at = steady_now(),
                     .kind = decision.kind,
                     .model = registry_.name(decision.model),
                     .device = decision.device ? hosts_.device_name(*decision.device) : "",
                     .for_model = decision.for_model ? registry_.name(*decision.for_model) : "",
                     .why = decision.why,
                     .first_token = decision.first_token});
  }

  void execute(const core::LoadMeasured& measured) {
    loads_.note(registry_.name(measured.model), measured.window, measured.load);
    if (loads_.clock_moved()) {
      configure_core();  // Windows begin at other times from now on.
    }
  }

  void execute(const core::PlanMeasured& measured) {
    decisions_.measured(registry_.name(measured.model),
                        hosts_.device_name(measured.device),
                        measured.predicted,
                        measured.took);
    publish(measured, metrics_);
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
    for (const core::EngineStatus& engine : hosts_.engines()) {
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
  LoadRecords& loads_;
  SwitchTimes switches_{};
  core::ManagerCore core_{};
  ModelRegistry registry_{};
  Hosts hosts_{};
  std::map<FrontId, serving::FrontPort*> fronts_{};
  bool peers_told_ = false;  ///< The core has heard which GPUs can have guests.
  Tickets tickets_{};
  std::vector<EarlyLoad> early_{};
  std::function<void()> drained_{};
  core::Hearing<core::ManagerCore, core::ManagerEvent, core::ManagerCommand> hearing_{};
  asio::steady_timer timer_;
  host::CoreLog log_{};
  DecisionLog decisions_{};
  std::set<ModelId> decided_{};   ///< Models that the core decides about, shards among them.
  std::deque<Recall> recalls_{};  ///< What the core is told of next.
  bool recalling_ = false;        ///< It is about to be.
  bool settled_ = true;           ///< As the core has it.
};

Result<std::unique_ptr<Manager>> Manager::create(const asio::any_io_executor& executor,
                                                 const config::Config& config,
                                                 Metrics& metrics,
                                                 LoadRecords& records) {
  auto impl = std::make_shared<Impl>(executor, config, metrics, records);
  if (const Result<void> begun = impl->begin(); !begun) {
    return begun.error();
  }
  return std::unique_ptr<Manager>(new Manager(std::move(impl)));
}

Manager::Manager(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Manager::~Manager() = default;

void Manager::configure(const config::Config& config,
                        const std::map<HostId, std::vector<host::Offer>>& offers) {
  impl_->configure(config, offers);
}
void Manager::drain(Instant deadline, std::function<void()> done) {
  impl_->drain(deadline, std::move(done));
}
void Manager::load(ModelId model, std::function<void(Result<void>)> done) {
  impl_->load(model, std::move(done));
}
void Manager::unload(ModelId model,
                     core::EvictionReason why,
                     std::function<void(Result<void>)> done) {
  impl_->unload(model, why, std::move(done));
}
void Manager::preload() {
  impl_->preload();
}
void Manager::add_host(HostId host, host::HostPort& port, host::HostFacts facts) {
  impl_->add_host(host, port, std::move(facts));
}
void Manager::remove_host(HostId host) {
  impl_->remove_host(host);
}
void Manager::lose_host(HostId host) {
  impl_->lose_host(host);
}
void Manager::offered(HostId host, std::vector<host::Offer> offers) {
  impl_->offered(host, std::move(offers));
}
void Manager::heard(core::ManagerEvent event) {
  impl_->heard(std::move(event));
}
void Manager::told(DeviceId device, ModelId model) {
  impl_->told(device, model);
}
void Manager::add_front(FrontId id, serving::FrontPort& port) {
  impl_->add_front(id, port);
}
void Manager::adopt(core::FrontState front) {
  impl_->adopt(std::move(front));
}
void Manager::remove_front(FrontId id) {
  impl_->remove_front(id);
}
void Manager::settle(bool settled) {
  impl_->settle(settled);
}
void Manager::tell(const serving::RequestNews& news) {
  impl_->tell(news);
}
std::string Manager::digest(ModelId model) const {
  return impl_->digest(model);
}
std::int64_t Manager::tokens_max(ModelId model) const {
  return impl_->tokens_max(model);
}
std::vector<core::ModelStatus> Manager::models() const {
  return impl_->models();
}
std::vector<core::DeviceStatus> Manager::devices() const {
  return impl_->devices();
}
ledger::PoolUsage Manager::host_usage() const {
  return impl_->hosts().usage();
}
std::vector<core::EngineStatus> Manager::engines() const {
  return impl_->hosts().engines();
}
std::vector<core::NotedDecision> Manager::decisions() const {
  return impl_->decisions();
}
std::vector<std::string> Manager::troubles() const {
  return impl_->hosts().troubles();
}

}  // namespace heddle::manager
