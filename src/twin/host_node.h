#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/submitted.h"
#include "twin/cluster_messages.h"
#include "twin/host.h"
#include "twin/wire.h"

namespace heddle::twin {

/// One life of `heddle agent`: a host, and its ends of the links with managers and gateways, as
/// remote::HostService and node::AgentNode have them. One thread.
class HostNode {
 public:
  using OnHeard = std::function<void(HostNode&, core::AgentEvent)>;

  /// @param on_heard  The host's agent is to hear this: then host().step() is called with it.
  HostNode(const HostSetup& setup,
           const HostSurroundings& around,
           const ClusterTimes& times,
           OnHeard on_heard);

  /// A manager of that name has linked. A second link of the same replaces the first.
  void take_manager(const std::shared_ptr<Wire>& wire, int name);
  /// The same of a gateway.
  void take_gateway(const std::shared_ptr<Wire>& wire, FrontId front);
  /// The machine dies, with all its workers.
  void die();

  [[nodiscard]] Host& host() { return host_; }
  [[nodiscard]] const Host& host() const { return host_; }
  /// Requests of gateways that run here.
  [[nodiscard]] std::size_t requests() const { return submitted_.size(); }

 private:
  using LinkNo = core::LinkId;
  struct Link {
    std::shared_ptr<Wire> wire{};
    std::optional<FrontId> front{};  ///< Of a gateway.
    int manager = 0;                 ///< Else the name.
  };

  void take(Link link);
  void end(LinkNo link);
  void forget(LinkNo link);
  void hear_manager(LinkNo link, const Message& message);
  void hear_gateway(LinkNo link, const Message& message);
  void follow(LinkNo link, const Lead& lead);
  void configure(const Configuration& configuration);
  void run(LinkNo link, Life place, core::Submit submit);
  void said(const core::ManagerEvent& event);
  void tokens(Life from, const std::vector<core::TokenEvent>& tokens);
  [[nodiscard]] bool pass_on(const core::WorkerSaid& said);
  void tell(LinkNo link, Message message);
  void tell_manager(Message message);
  void heard(core::AgentEvent event) { on_heard_(*this, std::move(event)); }

  HostSurroundings around_;
  const ClusterTimes& times_;
  OnHeard on_heard_;
  Host host_;
  core::Submitted submitted_{};
  std::map<LinkNo, Link> links_{};
  std::uint64_t links_given_ = 0;
  std::uint64_t term_ = 0;          ///< The highest heard,
  std::optional<int> leads_{};      ///< and who said it.
  std::optional<LinkNo> leader_{};  ///< The link of the one who leads, while it is up.
  Instant opened_{};                ///< When the models of the last configuration are open.
  std::uint64_t revision_ = 0;      ///< Of what is open.
  core::AgentModels offers_{};
};

}  // namespace heddle::twin
