#include "node/agent_node.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "host/configured_host.h"
#include "manager/loop_lag.h"
#include "net/listener.h"
#include "remote/cache_service.h"
#include "remote/engine_service.h"
#include "remote/host_service.h"
#include "remote/kv_links.h"
#include "remote/peer_caches.h"
#include "remote/pipe_edges.h"

namespace heddle::node {

namespace {

/// Whoever leaves looks so often whether something is left.
constexpr Duration kLeavingLook = std::chrono::milliseconds(50);

}  // namespace

class AgentNode::Impl {
 public:
  Impl(const boost::asio::any_io_executor& executor,
       config::Config config,
       const NodeSelf& self,
       Metrics& metrics)
      : executor_(executor),
        config_(std::move(config)),
        self_(self),
        lag_(executor_, metrics),
        leaving_(executor_) {}

  Result<void> begin() {
    const HostId id(self_.number);
    const auto link = std::make_shared<agent::FetchLink>(config_.host.nic);
    peers_.emplace(executor_, self_.self);
    caches_.emplace(executor_, host::fetch_options(config_).places, link);
    edges_.emplace(
        executor_, self_.self, [this](const agent::EdgeNews& news) { host_->hear_edges(news); });
    kv_.emplace(executor_, self_.self, [this](rpc::KvAsk ask, agent::KvAnswer answer) {
      host_->give_kv(std::move(ask), std::move(answer));
    });
    auto host = host::ConfiguredHost::create(
        executor_,
        config_,
        {.id = id, .name = self_.name, .incarnation = self_.self.incarnation},
        {.edges = &*edges_,
         .ask_kv = [this](const rpc::KvAsk& ask,
                          agent::KvAnswer answer) { kv_->ask(ask, std::move(answer)); },
         .link = link,
         .find_peer = [this](const core::GroupHost& host) { return peers_->peer(host); },
         .on_event = [this](core::ManagerEvent event) { service_->heard(std::move(event)); },
         .on_tokens =
             [this](DeviceId device, WorkerEpoch epoch, std::vector<core::TokenEvent> tokens) {
               service_->tokens(device, epoch, std::move(tokens));
             },
         .on_told = [this](DeviceId device, ModelId model) { service_->told(device, model); },
         .silent_since = [this](ModelId model) { return engines_->silent_since(model); }});
    if (!host) {
      return host.error();
    }
    host_ = std::move(*host);
    service_.emplace(
        executor_,
        *host_,
        id,
        facts(),
        remote::HostServiceHooks{
            .on_configuration = [this](std::uint64_t revision,
                                       std::string text) { configure(revision, std::move(text)); },
            .find_text = [this](const std::string& model,
                                const std::string& digest) { return find_text(model, digest); }});
    engines_.emplace(executor_, *host_);
    host_->on_offers([this](std::vector<host::Offer> offers) {
      offers_ = std::move(offers);
      service_->offers(revision_, *offers_);
    });
    host_->set_models({});
    host_->start();
    auto listener = net::Listener::open(
        executor_,
        self_.listen,
        self_.self,
        {net::Role::kManager, net::Role::kGateway, net::Role::kAgent},
        {.on_peer = [this](std::unique_ptr<net::HostLink> link,
                           const net::Peer& peer) { take(std::move(link), peer); },
         .on_refused = log_refused});
    if (!listener) {
      return listener.error();
    }
    listener_ = std::move(*listener);
    return {};
  }

  void leave(Duration patience, std::function<void()> done) {
    service_->leave(true);
    left_ = std::move(done);
    leave_by_ = steady_now() + patience;
    look_whether_empty();
  }

  [[nodiscard]] std::vector<std::string> troubles() const {
    std::vector<std::string> all = host_->troubles();
    if (!service_->led()) {
      all.emplace_back("no manager leads this host");
    }
    return all;
  }

  void publish(Metrics& metrics) {
    metrics.set(
        "heddle_agent_led", "1 while a manager leads this host.", {}, service_->led() ? 1 : 0);
    metrics.set(
        "heddle_agent_leaving", "1 once this host is to go.", {}, service_->leaving() ? 1 : 0);
    metrics.set("heddle_agent_requests_running",
                "Requests of gateways that run here.",
                {},
                static_cast<double>(service_->requests()));
    const ledger::PoolUsage images = host_->host_usage();
    metrics.set("heddle_agent_host_pages",
                "Of the budget for images.",
                {},
                static_cast<double>(images.total));
    metrics.set("heddle_agent_host_pages_free",
                "Of these, free ones.",
                {},
                static_cast<double>(images.free));
    count_fetches(metrics);
    metrics.set("heddle_agent_given_bytes",
                "Of models in this host's caches, what other hosts have taken.",
                {},
                static_cast<double>(caches_->given_bytes()));
    for (const core::DeviceStatus& device : service_->devices()) {
      const Labels labels{{"device", device.name}};
      metrics.set(
          "heddle_worker_up", "1 while the worker of the device runs.", labels, device.up ? 1 : 0);
      metrics.set("heddle_worker_steps",
                  "Steps of its engine since the worker started.",
                  labels,
                  static_cast<double>(device.steps));
      metrics.set("heddle_worker_copied_bytes",
                  "Of images, since the worker started.",
                  labels,
                  static_cast<double>(device.copied_bytes));
    }
  }

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }

 private:
  [[nodiscard]] host::HostFacts facts() const {
    host::HostFacts facts = host_->facts();
    facts.isa = self_.self.isa;
    facts.build = self_.self.build;
    return facts;
  }

  /// What has come since the last time, by where it came from.
  void count_fetches(Metrics& metrics) {
    for (const core::FetchStatus& fetch : host_->fetches()) {
      for (const auto& [kind, bytes] :
           {std::pair(fetch.kind, fetch.fetched_bytes - fetch.peer_bytes),
            std::pair(std::string(core::kPeerSource), fetch.peer_bytes)}) {
        std::uint64_t& before = fetched_[{fetch.model, kind}];
        if (bytes > before) {
          metrics.add("heddle_fetch_bytes_total",
                      "Bytes of models that have come over the network.",
                      {{"model", fetch.model}, {"source_kind", kind}},
                      static_cast<double>(bytes - before));
          before = bytes;
        }
      }
    }
  }

  void look_whether_empty() {
    if (service_->empty() || steady_now() >= leave_by_) {
      std::exchange(left_, nullptr)();
      return;
    }
    leaving_.expires_after(kLeavingLook);
    leaving_.async_wait([this](const boost::system::error_code& stopped) {
      if (!stopped) {
        look_whether_empty();
      }
    });
  }

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    if (peer.use == rpc::LinkUse::kEngines) {
      engines_->take(std::move(link), peer);
    } else if (peer.use == rpc::LinkUse::kPipes && peer.identity.role == net::Role::kAgent) {
      edges_->take(std::move(link), peer);
    } else if (peer.use == rpc::LinkUse::kFiles && peer.identity.role == net::Role::kAgent) {
      caches_->take(std::move(link), peer);
    } else if (peer.use == rpc::LinkUse::kKv && peer.identity.role == net::Role::kAgent) {
      kv_->take(std::move(link), peer);
    } else {
      service_->take(std::move(link), peer);
    }
  }

  /// Opens what the cluster wants of models, unless that is what is open already.
  void configure(std::uint64_t revision, std::string text) {
    revision_ = revision;
    if (offers_ && text == text_) {
      service_->offers(revision, *offers_);
      return;
    }
    Result<config::Config> both = with_cluster(config_, text);
    if (!both) {
      log::error("the cluster's configuration cannot be used", {{"why", both.error().message}});
      service_->offers(revision, {});
      return;
    }
    host_->open_later(std::move(*both),
                      [this, revision, text = std::move(text)](std::vector<host::Offer> offers) {
                        text_ = text;
                        offers_ = std::move(offers);
                        service_->offers(revision, *offers_);
                      });
  }

  [[nodiscard]] Result<std::filesystem::path> find_text(const std::string& model,
                                                        const std::string& digest) const {
    if (!offers_) {
      return Error{.code = Code::kUnavailable,
                   .message = "host " + self_.name + " has not opened its models yet"};
    }
    for (const host::Offer& offer : *offers_) {
      if (offer.name == model && offer.digest == digest && !digest.empty()) {
        if (const auto directory = host_->directory_of(model)) {
          return *directory;
        }
      }
    }
    return Error{
        .code = Code::kNotFound,
        .message = "host " + self_.name + " has no model \"" + model + "\" of these files"};
  }

  boost::asio::any_io_executor executor_;
  config::Config config_;
  NodeSelf self_;
  manager::LoopLag lag_;
  std::string text_{};  ///< What `offers_` answer.
  /// Bytes that were published, by model and source.
  std::map<std::pair<std::string, std::string>, std::uint64_t> fetched_{};
  std::uint64_t revision_ = 0;  ///< Of the configuration that came last.
  std::optional<std::vector<host::Offer>> offers_{};
  std::optional<remote::PipeEdges> edges_{};   ///< Outlives the host,
  std::optional<remote::PeerCaches> peers_{};  ///< likewise.
  std::optional<remote::CacheService> caches_{};
  std::optional<remote::KvLinks> kv_{};  ///< Outlives the host, likewise.
  std::unique_ptr<host::ConfiguredHost> host_{};
  std::optional<remote::HostService> service_{};  ///< Ends before the host.
  std::optional<remote::EngineService> engines_{};
  std::unique_ptr<net::Listener> listener_{};
  boost::asio::steady_timer leaving_;
  std::function<void()> left_{};
  Instant leave_by_{};
};

Result<std::unique_ptr<AgentNode>> AgentNode::create(const boost::asio::any_io_executor& executor,
                                                     const config::Config& config,
                                                     const NodeSelf& self,
                                                     Metrics& metrics) {
  auto impl = std::make_unique<Impl>(executor, config, self, metrics);
  if (const Result<void> begun = impl->begin(); !begun) {
    return begun.error();
  }
  metrics.on_scrape([host = impl.get()](Metrics& all) { host->publish(all); });
  return std::unique_ptr<AgentNode>(new AgentNode(std::move(impl)));
}

AgentNode::AgentNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AgentNode::~AgentNode() = default;

void AgentNode::leave(Duration patience, std::function<void()> done) {
  impl_->leave(patience, std::move(done));
}
std::vector<std::string> AgentNode::troubles() const {
  return impl_->troubles();
}
std::uint16_t AgentNode::port() const {
  return impl_->port();
}

}  // namespace heddle::node
