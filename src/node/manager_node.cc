#include "node/manager_node.h"

#include <optional>
#include <string>
#include <utility>

#include <boost/asio/co_spawn.hpp>

#include "base/log.h"
#include "cluster/election.h"
#include "cluster/registry.h"
#include "net/listener.h"

namespace heddle::node {

namespace asio = boost::asio;

namespace {

/// Of the record that the leader renews.
constexpr const char* kLeaderKey = "leader";

}  // namespace

class ManagerNode::Impl {
 public:
  Impl(const asio::any_io_executor& executor,
       ClusterText cluster,
       const NodeSelf& self,
       Metrics& metrics)
      : executor_(executor), cluster_(std::move(cluster)), self_(self), metrics_(metrics) {}

  Result<void> begin() {
    auto listener = net::Listener::open(
        executor_,
        self_.listen,
        self_.self,
        {net::Role::kGateway},
        {.on_peer = [this](std::unique_ptr<net::HostLink> link,
                           const net::Peer& peer) { accept(std::move(link), peer); },
         .on_refused = log_refused});
    if (!listener) {
      return listener.error();
    }
    listener_ = std::move(*listener);
    const std::string& url = cluster_.config.cluster->registry;
    if (url.empty()) {
      return lead(self_.self.incarnation);
    }
    Result<std::shared_ptr<cluster::Registry>> registry = cluster::open_registry(executor_, url);
    if (!registry) {
      return registry.error();
    }
    election_.emplace(
        executor_,
        std::move(*registry),
        kLeaderKey,
        self_.name,
        net::Address{.host = self_.listen.host, .port = listener_->port()}.text(),
        cluster::ElectionHandlers{
            .elected = [this](cluster::Term term) { take_office(term); },
            .lost = [this](cluster::election::Why /*why*/,
                           std::string_view said) { step_down(std::string(said)); },
            .leader = [this](const cluster::election::Leader& leader) { leads_ = leader.name; }});
    return {};
  }

  Result<void> reconfigure(ClusterText cluster) {
    if (leader_) {
      if (const Result<void> done = leader_->reconfigure(cluster); !done) {
        return done;
      }
    }
    cluster_ = std::move(cluster);
    return {};
  }

  void leave(std::function<void()> done) {
    leader_.reset();
    if (!election_) {
      done();
      return;
    }
    asio::co_spawn(executor_, election_->leave(), [done](std::exception_ptr /*none*/) { done(); });
  }

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }

 private:
  Result<void> lead(cluster::Term term) {
    auto leader = Leader::create(executor_, cluster_, self_, term, metrics_);
    if (!leader) {
      return leader.error();
    }
    leader_ = std::move(*leader);
    return {};
  }

  void take_office(cluster::Term term) {
    log::info("this manager leads", {{"term", term}});
    if (const Result<void> done = lead(term); !done) {
      log::error("this manager cannot lead", {{"why", done.error().message}});
      election_.reset();  // Another one may.
    }
  }

  void step_down(const std::string& why) {
    log::warning("this manager leads no longer", {{"why", why}});
    leader_.reset();
  }

  void accept(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    if (leader_) {
      leader_->accept(std::move(link), peer);
    } else {
      link->end("manager " + self_.name + " stands by; " +
                (leads_.empty() ? "nobody leads yet" : leads_ + " leads"));
    }
  }

  asio::any_io_executor executor_;
  ClusterText cluster_;
  NodeSelf self_;
  Metrics& metrics_;
  std::string leads_{};  ///< Who, as the registry has it.
  std::unique_ptr<Leader> leader_{};
  std::unique_ptr<net::Listener> listener_{};
  std::optional<cluster::Election> election_{};
};

Result<std::unique_ptr<ManagerNode>> ManagerNode::create(const asio::any_io_executor& executor,
                                                         ClusterText cluster,
                                                         const NodeSelf& self,
                                                         Metrics& metrics) {
  auto impl = std::make_unique<Impl>(executor, std::move(cluster), self, metrics);
  if (const Result<void> begun = impl->begin(); !begun) {
    return begun.error();
  }
  return std::unique_ptr<ManagerNode>(new ManagerNode(std::move(impl)));
}

ManagerNode::ManagerNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ManagerNode::~ManagerNode() = default;

std::uint16_t ManagerNode::port() const {
  return impl_->port();
}
Result<void> ManagerNode::reconfigure(ClusterText cluster) {
  return impl_->reconfigure(std::move(cluster));
}
void ManagerNode::leave(std::function<void()> done) {
  impl_->leave(std::move(done));
}

}  // namespace heddle::node
