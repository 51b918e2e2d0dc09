#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/ids.h"
#include "twin/agenda.h"
#include "twin/cluster_messages.h"
#include "twin/gateway.h"
#include "twin/setup.h"
#include "twin/wire.h"

namespace heddle::twin {

/// `heddle gateway`: requests, and their owner's ends of the links with managers and hosts, as
/// serving::Front, remote::RemoteManager and remote::RemoteHosts have them. One thread.
class GatewayNode {
 public:
  struct Hooks {
    /// The link with the host has ended: another is to be had.
    std::function<void(HostId)> on_host_gone{};
    /// The same of the manager.
    std::function<void()> on_manager_gone{};
  };

  /// `times` and `agenda` outlive it, and it outlives what it puts on the agenda.
  GatewayNode(FrontId front, const ClusterTimes& times, Agenda& agenda, Hooks hooks);

  /// It has linked with a manager, or with a host.
  void meet_manager(const std::shared_ptr<Wire>& wire);
  void meet_host(HostId host, const std::shared_ptr<Wire>& wire);

  /// A request arrives now, whatever its time is.
  RequestId ask(const Ask& ask);
  void cancel(RequestId id);
  void finish_choice(RequestId id, std::uint32_t choice);
  /// Has the manager load or unload a model: AdminLoad or AdminUnload.
  void operate(bool load, ModelId model);

  [[nodiscard]] const Gateway& gateway() const { return gateway_; }
  /// It knows of so many.
  [[nodiscard]] std::size_t models() const { return served_.tokens_max.size(); }
  /// So many of what operate() asked for were answered.
  [[nodiscard]] std::int64_t answers() const { return answers_; }

 private:
  /// A host, and what was submitted over the link to it.
  struct Host {
    std::shared_ptr<Wire> wire{};
    bool linked = false;       ///< It has said Lives.
    std::vector<Life> used{};  ///< That were sent requests over this link.
  };
  void tell(const core::ManagerEvent& event);
  void hear_manager(const Message& message);
  void hear_host(HostId id, const Message& message);
  void carry_out(const core::Dispatch& command);
  void carry_out(const core::FailRequest& command);
  void fail(RequestId id, Error error);
  void give_up(RequestId id);
  void hear_worker(const core::WorkerSaid& said);
  void send(Life place, core::WorkerMessage message);
  [[nodiscard]] bool send_to(Host& host, Life place, const core::WorkerMessage& message);
  void leave_host(HostId id);
  void lose(Life place);
  void lose_later(Life place);
  void tell_lost();

  const ClusterTimes& times_;
  Agenda& agenda_;
  Hooks hooks_;
  Gateway gateway_;
  std::shared_ptr<Wire> manager_{};
  Served served_{};
  std::set<core::TicketId> waiting_{};
  std::uint64_t tickets_ = 0;
  std::int64_t answers_ = 0;
  std::map<HostId, Host> hosts_{};
  std::vector<Life> lost_{};  ///< Of which the requests are about to hear.
  bool resting_ = false;
};

}  // namespace heddle::twin
