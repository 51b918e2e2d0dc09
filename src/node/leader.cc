#include "node/leader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "manager/manager.h"
#include "manager/setup.h"
#include "node/load_sync.h"
#include "remote/gateway_service.h"
#include "remote/remote_host.h"

namespace heddle::node {

namespace asio = boost::asio;

namespace {

/// How long nothing is decided at most, for hosts and gateways to say what they have.
constexpr Duration kSettling = std::chrono::milliseconds(500);
/// Likewise before any host has said what it can do: nothing is known of models until then.
constexpr Duration kFirstHost = std::chrono::seconds(5);

}  // namespace

class Leader::Impl : public std::enable_shared_from_this<Leader::Impl>, public remote::LeaderPort {
 public:
  Impl(asio::any_io_executor executor,
       ClusterText cluster,
       const Roster& roster,
       const NodeSelf& self,
       std::uint64_t term,
       manager::LoadRecords& loads,
       LeaderHooks hooks)
      : executor_(std::move(executor)),
        cluster_(std::move(cluster)),
        roster_(roster),
        self_(self),
        term_(term),
        hooks_(std::move(hooks)),
        settling_(executor_),
        loads_(loads),
        load_sync_(executor_, loads_) {}

  Result<void> begin(Metrics& metrics) {
    auto manager = manager::Manager::create(executor_, cluster_.config, metrics, loads_);
    if (!manager) {
      return manager.error();
    }
    manager_ = std::move(*manager);
    manager_->configure(cluster_.config, {});
    gateways_.emplace(executor_, *this, *manager_);
    gateways_->configure(cluster_.revision, cluster_.text);
    gateways_->hold_models(true);
    unsettle(kFirstHost);
    update_roster();
    return {};
  }

  /// Links with hosts that are new, and forgets those that have gone: not before their links end.
  void update_roster() {
    const std::vector<remote::HostAddress> wanted = roster_.hosts();
    for (const remote::HostAddress& where : wanted) {
      const auto known = hosts_.find(where.id);
      if (known != hosts_.end() && known->second.where != where) {
        forget(where.id);
      }
      if (!hosts_.contains(where.id)) {
        link(where);
      }
    }
    std::vector<HostId> gone;
    for (const auto& [id, host] : hosts_) {
      if (!host.here && std::ranges::find(wanted, id, &remote::HostAddress::id) == wanted.end()) {
        gone.push_back(id);
      }
    }
    for (const HostId id : gone) {
      forget(id);
    }
    gateways_->changed();
  }

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    const std::optional<FrontId> front = roster_.gateway(peer.identity.name);
    if (!front) {
      link->end(
          gateways_join(*cluster_.config.cluster)
              ? "gateway \"" + peer.identity.name + "\" has not joined, as far as is known here"
              : "cluster.gateways of this manager does not have \"" + peer.identity.name + "\"");
      return;
    }
    gateways_->accept(std::move(link), peer, *front);
  }

  Result<void> reconfigure(ClusterText cluster) {
    if (const Result<void> possible = manager::check_reload(cluster_.config, cluster.config);
        !possible) {
      return possible;
    }
    if (cluster.config.cluster != cluster_.config.cluster) {
      return Error{.code = Code::kFailedPrecondition,
                   .message = "reload configuration: `cluster` has changed, which takes a restart"};
    }
    cluster_ = std::move(cluster);
    manager_->configure(cluster_.config, {});
    gateways_->configure(cluster_.revision, cluster_.text);
    for (auto& [id, host] : hosts_) {
      host.port->configure(cluster_.revision, cluster_.text);
    }
    return {};
  }

  // ---- What gateways have to do with ----

  void tell(const serving::RequestNews& news) override { manager_->tell(news); }
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const override {
    return manager_->tokens_max(model);
  }
  void add_front(FrontId id, serving::FrontPort& port) override { manager_->add_front(id, port); }
  void adopt(core::FrontState front) override {
    told_.insert(front.front);
    manager_->adopt(std::move(front));
    settle_if_known();
  }
  void remove_front(FrontId id) override { manager_->remove_front(id); }
  void load(ModelId model, std::function<void(Result<void>)> done) override {
    manager_->load(model, std::move(done));
  }
  void unload(ModelId model,
              core::EvictionReason why,
              std::function<void(Result<void>)> done) override {
    manager_->unload(model, why, std::move(done));
  }
  [[nodiscard]] std::string digest(ModelId model) const override { return manager_->digest(model); }
  [[nodiscard]] std::vector<core::HostEntry> hosts() const override {
    std::vector<core::HostEntry> all;
    for (const auto& [id, host] : hosts_) {
      all.push_back(host.port->entry());
    }
    return all;
  }
  void apply(std::string text, bool dry_run, std::function<void(Result<void>)> done) override {
    hooks_.apply(std::move(text), dry_run, std::move(done));
  }
  void leave(HostId id, bool leaving, std::function<void(Result<void>)> done) override {
    const auto found = hosts_.find(id);
    if (found != hosts_.end() && found->second.here) {
      found->second.port->leave(leaving);
      done({});
      return;
    }
    const std::string away = found == hosts_.end()
                                 ? "there is no host " + std::to_string(id.value())
                                 : "host " + found->second.where.name +
                                       " is away: " + found->second.port->entry().trouble;
    done(Error{.code = Code::kFailedPrecondition, .message = away});
  }

 private:
  /// A host, and how far it has told of itself.
  struct Host {
    remote::HostAddress where{};
    std::unique_ptr<remote::RemoteHost> port{};
    bool here = false;                        ///< It is linked.
    bool offered = false;                     ///< And has said what it can do about the models.
    bool known = false;                       ///< And has said all that it has.
    std::vector<core::ManagerEvent> early{};  ///< What it has, before its offers are known.
  };

  void link(const remote::HostAddress& where) {
    const HostId id = where.id;
    Host& host = hosts_[id];
    host.where = where;
    host.port = std::make_unique<remote::RemoteHost>(
        executor_,
        remote::RemoteHostSetup{
            .id = id, .name = where.name, .address = where.address, .term = term_},
        self_.self,
        remote::RemoteHostHandlers{
            .on_here = [this, id](host::HostFacts facts) { meet(id, std::move(facts)); },
            .on_known = [this, id] { know(id); },
            .on_offers =
                [this, id](std::uint64_t /*revision*/, std::vector<host::Offer> offers) {
                  take_offers(id, std::move(offers));
                },
            .on_event = [this, id](core::ManagerEvent event) { hear(id, std::move(event)); },
            .on_told = [this](DeviceId device, ModelId model) { manager_->told(device, model); },
            .on_later_term = [this](std::uint64_t term) { hear_of(term); },
            .on_loads = [this, id](const remote::Loads& loads) { load_sync_.hear(id, loads); },
            .on_gone = [this, id](const Error& /*why*/) { lose(id); }});
    host.port->configure(cluster_.revision, cluster_.text);
  }

  /// It has left the cluster, or is elsewhere from now on.
  void forget(HostId id) {
    const auto host = hosts_.find(id);
    log::info("host has left", {{"host", host->second.where.name}});
    manager_->remove_host(id);
    load_sync_.lose(id);
    hosts_.erase(host);
  }

  void meet(HostId id, host::HostFacts facts) {
    Host& host = hosts_.at(id);
    host.here = true;
    manager_->add_host(id, *host.port, std::move(facts));
    if (host.port->remembers_loads()) {
      remote::RemoteHost* const port = host.port.get();
      load_sync_.meet(id,
                      {.name = host.where.name,
                       .ask = [port](const remote::TellLoads& what) { port->ask_loads(what); },
                       .tell = [port](const remote::Loads& what) { port->tell_loads(what); }});
    }
  }

  /// Its models have to be known before what it has of them is heard: at first by the offers of all
  /// hosts, as a model may be on several together.
  void hear(HostId id, core::ManagerEvent event) {
    Host& host = hosts_.at(id);
    if (host.offered && started_) {
      manager_->heard(std::move(event));
    } else {
      host.early.push_back(std::move(event));
    }
  }
  void hear_early(Host& host) {
    for (core::ManagerEvent& event : std::exchange(host.early, {})) {
      manager_->heard(std::move(event));
    }
  }

  void take_offers(HostId id, std::vector<host::Offer> offers) {
    Host& host = hosts_.at(id);
    if (!host.offered) {
      unsettle(kSettling);
    }
    manager_->offered(id, std::move(offers));
    host.offered = true;
    if (started_) {
      hear_early(host);
    }
    settle_if_known();
    gateways_->changed();
  }

  void know(HostId id) {
    hosts_.at(id).known = true;
    settle_if_known();
  }

  void lose(HostId id) {
    Host& host = hosts_.at(id);
    if (host.offered) {
      manager_->lose_host(id);
    }
    host.here = host.offered = host.known = false;
    host.early.clear();
    load_sync_.lose(id);
    update_roster();
    if (alone()) {
      boost::asio::post(executor_, hooks_.alone);
    }
  }

  [[nodiscard]] bool alone() const {
    return std::ranges::none_of(hosts_, [](const auto& entry) { return entry.second.here; });
  }

  /// While any host follows, what another one says of terms counts for nothing.
  void hear_of(std::uint64_t term) {
    if (alone()) {
      boost::asio::post(executor_, [later = hooks_.later_term, term] { later(term); });
    }
  }

  // ---- Deciding nothing before it is known what there is ----

  void unsettle(Duration at_most) {
    manager_->settle(false);
    settled_ = false;
    load_sync_.settle(false);
    settling_.expires_after(at_most);
    settling_.async_wait(
        [weak = weak_from_this(), turn = ++unsettled_](const boost::system::error_code& stopped) {
          const std::shared_ptr<Impl> self = weak.lock();
          if (!stopped && self != nullptr && turn == self->unsettled_) {
            self->settle();
          }
        });
  }

  void settle_if_known() {
    // At first those are waited for that have not linked yet.
    const bool hosts = std::ranges::all_of(hosts_, [this](const auto& entry) {
      const Host& host = entry.second;
      return (started_ && !host.here) || (host.offered && host.known);
    });
    const bool gateways = started_ || told_.size() >= roster_.gateways();
    if (!settled_ && hosts && gateways) {
      settle();
    }
  }

  void settle() {
    settling_.cancel();
    settled_ = true;
    if (!started_) {
      gateways_->hold_models(false);
      for (auto& [id, host] : hosts_) {
        if (host.offered) {
          hear_early(host);
        }
      }
    }
    manager_->settle(true);
    if (!std::exchange(started_, true)) {
      manager_->preload();
    }
    load_sync_.settle(true);
  }

  asio::any_io_executor executor_;
  ClusterText cluster_;
  const Roster& roster_;
  NodeSelf self_;
  const std::uint64_t term_;
  const LeaderHooks hooks_;
  asio::steady_timer settling_;
  bool settled_ = false;
  std::uint64_t unsettled_ = 0;  ///< Times that it was not settled any more.
  bool started_ = false;         ///< It has decided something.
  std::set<FrontId> told_{};     ///< Gateways that have said what runs.
  manager::LoadRecords& loads_;
  LoadSync load_sync_;
  std::unique_ptr<manager::Manager> manager_{};
  std::map<HostId, Host> hosts_{};
  std::optional<remote::GatewayService> gateways_{};
};

Result<std::unique_ptr<Leader>> Leader::create(const asio::any_io_executor& executor,
                                               ClusterText cluster,
                                               const Roster& roster,
                                               const NodeSelf& self,
                                               std::uint64_t term,
                                               Metrics& metrics,
                                               manager::LoadRecords& loads,
                                               LeaderHooks hooks) {
  auto impl = std::make_shared<Impl>(
      executor, std::move(cluster), roster, self, term, loads, std::move(hooks));
  if (const Result<void> begun = impl->begin(metrics); !begun) {
    return begun.error();
  }
  return std::unique_ptr<Leader>(new Leader(std::move(impl)));
}

Leader::Leader(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Leader::~Leader() = default;

void Leader::accept(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
  impl_->take(std::move(link), peer);
}
std::vector<core::HostEntry> Leader::hosts() const {
  return impl_->hosts();
}
void Leader::update_roster() {
  impl_->update_roster();
}
Result<void> Leader::reconfigure(ClusterText cluster) {
  return impl_->reconfigure(std::move(cluster));
}

}  // namespace heddle::node
