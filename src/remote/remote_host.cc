#include "remote/remote_host.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "ledger/pool_sum.h"
#include "remote/known.h"
#include "remote/load_pieces.h"

namespace heddle::remote {

namespace {

/// Puts what the host said of a device into what the manager knows of it: all but what is the
/// manager's to say.
void add_said(const core::DeviceStatus& said, core::DeviceStatus& device) {
  core::DeviceStatus all = said;
  all.id = device.id;
  all.name = std::move(device.name);
  all.up = device.up;
  all.epoch = device.epoch;
  all.page_bytes = device.page_bytes;
  all.residents = std::move(device.residents);
  all.guests = std::move(device.guests);
  all.serving = device.serving;
  all.switching = device.switching;
  all.usage = device.usage;
  if (device.up && said.up && device.epoch == said.epoch) {  // What it has lent, else unknown.
    ledger::add(said.usage, all.usage);
  }
  device = std::move(all);
}

}  // namespace

class RemoteHost::Impl : public std::enable_shared_from_this<RemoteHost::Impl> {
 public:
  Impl(RemoteHostSetup setup, RemoteHostHandlers handlers)
      : setup_(std::move(setup)), handlers_(std::move(handlers)) {
    entry_ = {.id = setup_.id,
              .name = setup_.name,
              .address = setup_.address.text(),
              .trouble = trouble_};
  }

  void begin(const boost::asio::any_io_executor& executor,
             net::Self self,
             const net::ConnectorOptions& options) {
    connector_.emplace(
        executor,
        setup_.address,
        std::move(self),
        net::Wanted{.roles = {net::Role::kAgent}, .name = setup_.name},
        net::Connector::Handlers{.on_up = [this](const net::Peer& host) { greet(host); },
                                 .on_down = [this](const Error& why) { down(why); },
                                 .on_frame = [this](const rpc::Frame& frame) { hear(frame); }},
        options);
  }

  void close() { connector_.reset(); }

  void configure(std::uint64_t revision, std::string text) {
    configuration_ = Configuration{.revision = revision, .text = std::move(text)};
    if (up_) {
      tell(*configuration_);
    }
  }

  /// Of no use before the host follows: it has the state of another manager, then.
  void order(const ToHost& message) {
    if (devices_) {
      tell(message);
    }
  }

  [[nodiscard]] bool shares_cache() const { return shares_cache_; }
  void set_holders(const std::vector<host::Holder>& holders) {
    if (shares_cache_ && holders != holders_) {
      holders_ = holders;
      tell(Holders{.models = holders});
    }
  }

  [[nodiscard]] bool remembers_loads() const { return remembers_loads_; }
  void ask_loads(const TellLoads& what) {
    if (remembers_loads_) {
      asked_ = what;
      tell(what);
    }
  }
  void tell_loads(const Loads& what) {
    if (remembers_loads_) {
      tell(what);
    }
  }

  void describe(core::DeviceStatus& device) const {
    const auto said = std::ranges::find(status_.devices, device.id, &core::DeviceStatus::id);
    if (said != status_.devices.end()) {
      add_said(*said, device);
    }
  }
  [[nodiscard]] const HostStatus& status() const { return status_; }
  [[nodiscard]] const core::HostEntry& entry() const { return entry_; }
  [[nodiscard]] core::GroupHost address() const {
    return {.id = setup_.id,
            .name = setup_.name,
            .address = setup_.address.host,
            .port = setup_.address.port};
  }
  [[nodiscard]] std::vector<std::string> troubles() const {
    if (devices_) {
      return status_.troubles;
    }
    return {trouble_};
  }

 private:
  void tell(const ToHost& message) {
    if (const Result<void> sent = connector_->send(encode(message)); !sent) {
      connector_->end(sent.error().message);
    }
  }

  void greet(const net::Peer& host) {
    up_ = true;
    entry_.build = host.build;
    entry_.isa = host.isa;
    tell(Lead{.term = setup_.term, .hears_of_terms = true});
    if (configuration_) {
      tell(*configuration_);
    }
  }

  void down(const Error& why) {
    up_ = false;
    remembers_loads_ = false;
    shares_cache_ = false;
    holders_.clear();
    asked_.reset();
    if (trouble_ != why.message) {
      trouble_ = why.message;
      log::warning("host is not linked", {{"host", setup_.name}, {"why", why.message}});
    }
    status_ = {};
    entry_.presence = core::HostPresence::kAway;
    entry_.trouble = why.message;
    if (std::exchange(devices_, std::nullopt)) {
      entry_.since = steady_now();
      const std::shared_ptr<Impl> self = shared_from_this();
      handlers_.on_gone(why);
    }
  }

  void hear(const rpc::Frame& frame) {
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end this object.
    Result<FromHost> message = decode_from_host(frame.payload);
    const Result<void> good = message ? check(*message) : message.error();
    if (!good) {
      connector_->end(good.error().message);
      return;
    }
    std::visit([this](auto& said) { take(said); }, *message);
  }

  /// Whether it can be so, now, of this host.
  [[nodiscard]] Result<void> check(const FromHost& message) const {
    if (std::holds_alternative<LaterTerm>(message)) {
      return devices_ ? Error{.code = Code::kCorrupt, .message = "it follows, and says LaterTerm"}
                      : Result<void>();
    }
    const auto* const here = std::get_if<HostHere>(&message);
    if ((here != nullptr) == devices_.has_value()) {
      return Error{.code = Code::kCorrupt, .message = "it does not say HostHere once, and first"};
    }
    if (const auto* const loads = std::get_if<Loads>(&message)) {
      return asked_ ? check_answer(*loads, *asked_)
                    : Error{.code = Code::kCorrupt,
                            .message = "it says loads that it was not asked for"};
    }
    if (here == nullptr) {
      return devices_->check(message);
    }
    if (here->host != setup_.id) {
      return Error{.code = Code::kCorrupt,
                   .message = "it is host " + std::to_string(here->host.value()) +
                              ", and want host " + std::to_string(setup_.id.value())};
    }
    return check_facts(here->facts, setup_.id, setup_.name);
  }

  void take(HostHere& here) {
    devices_.emplace(setup_.id, here.facts.devices);
    trouble_ = {};
    entry_.presence = core::HostPresence::kHere;
    entry_.since = steady_now();
    entry_.trouble = {};
    remembers_loads_ = here.remembers_loads;
    shares_cache_ = here.shares_cache;
    log::info("host is linked", {{"host", setup_.name}, {"devices", here.facts.devices.size()}});
    handlers_.on_here(std::move(here.facts));
  }
  void take(HostKnown& /*known*/) { handlers_.on_known(); }
  void take(Offers& offers) { handlers_.on_offers(offers.revision, std::move(offers.offers)); }
  void take(Told& told) { handlers_.on_told(told.device, told.model); }
  void take(HostStatus& status) {
    make_instants(status, steady_now());
    status_ = std::move(status);
  }
  void take(LaterTerm& later) { handlers_.on_later_term(later.term); }
  void take(Loads& loads) {
    asked_.reset();
    handlers_.on_loads(loads);
  }
  void take(core::HostLeaving& leaving) {
    entry_.presence = leaving.leaving ? core::HostPresence::kLeaving : core::HostPresence::kHere;
    handlers_.on_event(leaving);
  }
  template <class Event>
  void take(Event& event) {
    handlers_.on_event(std::move(event));
  }

  const RemoteHostSetup setup_;
  const RemoteHostHandlers handlers_;
  std::optional<net::Connector> connector_{};
  std::optional<Configuration> configuration_{};
  bool up_ = false;                        ///< The link is.
  std::optional<KnownDevices> devices_{};  ///< Once the host has said what it is.
  bool remembers_loads_ = false;           ///< As it has said.
  bool shares_cache_ = false;              ///< Likewise.
  std::vector<host::Holder> holders_{};    ///< That it was told of.
  std::optional<TellLoads> asked_{};       ///< And has not answered.
  HostStatus status_{};
  core::HostEntry entry_{};
  std::string trouble_ = "it has not been linked yet";  ///< Why it is not.
};

RemoteHost::RemoteHost(const boost::asio::any_io_executor& executor,
                       RemoteHostSetup setup,
                       net::Self self,
                       RemoteHostHandlers handlers,
                       const net::ConnectorOptions& options)
    : impl_(std::make_shared<Impl>(std::move(setup), std::move(handlers))) {
  impl_->begin(executor, std::move(self), options);
}

RemoteHost::~RemoteHost() {
  impl_->close();
}

void RemoteHost::configure(std::uint64_t revision, std::string text) {
  impl_->configure(revision, std::move(text));
}
void RemoteHost::set_models(const std::vector<host::Assignment>& models) {
  impl_->order(SetModels{.models = models});
}
void RemoteHost::carry_out(const host::HostOrder& order) {
  std::visit([this](const auto& wanted) { impl_->order(wanted); }, order);
}
void RemoteHost::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  impl_->order(core::TellWorker{.device = device, .epoch = epoch, .message = std::move(message)});
}
void RemoteHost::leave(bool leaving) {
  impl_->order(Leave{.leaving = leaving});
}
bool RemoteHost::shares_cache() const {
  return impl_->shares_cache();
}
void RemoteHost::set_holders(const std::vector<host::Holder>& holders) {
  impl_->set_holders(holders);
}
bool RemoteHost::remembers_loads() const {
  return impl_->remembers_loads();
}
void RemoteHost::ask_loads(const TellLoads& what) {
  impl_->ask_loads(what);
}
void RemoteHost::tell_loads(const Loads& what) {
  impl_->tell_loads(what);
}
core::HostEntry RemoteHost::entry() const {
  return impl_->entry();
}
void RemoteHost::describe(core::DeviceStatus& device) const {
  impl_->describe(device);
}
ledger::PoolUsage RemoteHost::host_usage() const {
  return impl_->status().usage;
}
std::vector<core::EngineStatus> RemoteHost::engines() const {
  return impl_->status().engines;
}
std::vector<core::FetchStatus> RemoteHost::fetches() const {
  return impl_->status().fetches;
}
std::vector<std::string> RemoteHost::troubles() const {
  return impl_->troubles();
}
std::optional<core::GroupHost> RemoteHost::address() const {
  return impl_->address();
}
std::optional<HttpAddress> RemoteHost::engine_address(ModelId /*model*/) const {
  return std::nullopt;
}

}  // namespace heddle::remote
