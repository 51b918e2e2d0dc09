#include "node/agent_node.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "host/configured_host.h"
#include "net/listener.h"
#include "remote/engine_service.h"
#include "remote/host_service.h"
#include "store/text_files.h"

namespace heddle::node {

class AgentNode::Impl {
 public:
  Impl(const boost::asio::any_io_executor& executor, config::Config config, const NodeSelf& self)
      : executor_(executor), config_(std::move(config)), self_(self) {}

  Result<void> begin() {
    const HostId id(self_.number);
    auto host = host::ConfiguredHost::create(
        executor_,
        config_,
        {.id = id, .name = self_.name, .incarnation = self_.self.incarnation},
        {.on_event = [this](core::ManagerEvent event) { service_->heard(std::move(event)); },
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
        host_->facts(),
        remote::HostServiceHooks{
            .on_configuration = [this](std::uint64_t revision,
                                       std::string text) { configure(revision, std::move(text)); },
            .find_text = [this](const std::string& model,
                                const std::string& digest) { return find_text(model, digest); }});
    engines_.emplace(executor_, *host_);
    host_->set_models({});
    host_->start();
    auto listener = net::Listener::open(
        executor_,
        self_.listen,
        self_.self,
        {net::Role::kManager, net::Role::kGateway},
        {.on_peer = [this](std::unique_ptr<net::HostLink> link,
                           const net::Peer& peer) { take(std::move(link), peer); },
         .on_refused =
             [](const Error& why) { log::warning("link refused", {{"why", why.message}}); }});
    if (!listener) {
      return listener.error();
    }
    listener_ = std::move(*listener);
    return {};
  }

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }

 private:
  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    if (peer.use == rpc::LinkUse::kEngines) {
      engines_->take(std::move(link), peer);
    } else {
      service_->take(std::move(link), peer);
    }
  }

  /// Opens what the cluster wants of models, unless that is what is open already.
  void configure(std::uint64_t revision, std::string text) {
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

  [[nodiscard]] Result<std::vector<std::filesystem::path>> find_text(
      const std::string& model, const std::string& digest) const {
    if (!offers_) {
      return Error{.code = Code::kUnavailable,
                   .message = "host " + self_.name + " has not opened its models yet"};
    }
    for (const host::Offer& offer : *offers_) {
      if (offer.name == model && offer.digest == digest && !digest.empty()) {
        if (const auto directory = host_->directory_of(model)) {
          return store::text_files(*directory);
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
  std::string text_{};  ///< What `offers_` answer.
  std::optional<std::vector<host::Offer>> offers_{};
  std::unique_ptr<host::ConfiguredHost> host_{};
  std::optional<remote::HostService> service_{};  ///< Ends before the host.
  std::optional<remote::EngineService> engines_{};
  std::unique_ptr<net::Listener> listener_{};
};

Result<std::unique_ptr<AgentNode>> AgentNode::create(const boost::asio::any_io_executor& executor,
                                                     const config::Config& config,
                                                     const NodeSelf& self) {
  auto impl = std::make_unique<Impl>(executor, config, self);
  if (const Result<void> begun = impl->begin(); !begun) {
    return begun.error();
  }
  return std::unique_ptr<AgentNode>(new AgentNode(std::move(impl)));
}

AgentNode::AgentNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AgentNode::~AgentNode() = default;

std::uint16_t AgentNode::port() const {
  return impl_->port();
}

}  // namespace heddle::node
