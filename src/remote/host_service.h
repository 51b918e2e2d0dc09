#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "core/serving.h"
#include "host/host_port.h"
#include "host/offer.h"
#include "net/host_link.h"
#include "remote/caller.h"
#include "remote/text_sender.h"
#include "remote/ticker.h"

namespace heddle::remote {

struct HostServiceHooks {
  /// The manager's configuration has come; offers() answers with its revision.
  std::function<void(std::uint64_t revision, std::string text)> on_configuration{};
  FindText find_text{};
};

struct HostServiceOptions {
  std::size_t queued_most = kQueuedMost;  ///< For one manager or gateway.
  TickerOptions status{};                 ///< Of what there is to see.
};

/// A host for managers and gateways on other hosts: has it carry out what they want, and passes on
/// what it says to those who are to hear it. The manager of the highest term leads, and no other
/// is heard. What runs for a gateway is bound to its link, and ends with that. Loop thread only.
class HostService {
 public:
  /// @param port   The host, which outlives the service.
  /// @param facts  What it is; `assigned` is the service's to say.
  HostService(boost::asio::any_io_executor executor,
              host::LocalHostPort& port,
              HostId host,
              host::HostFacts facts,
              HostServiceHooks hooks,
              const HostServiceOptions& options = {});
  /// Ends all links; the host goes on with what managers ordered.
  ~HostService();
  HostService(const HostService&) = delete;
  HostService& operator=(const HostService&) = delete;

  /// Takes a manager or a gateway: net::Listener's on_peer. A second link of the same process
  /// replaces the first.
  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer);

  // ---- What the host says (host::HostHandlers) ----

  void heard(core::ManagerEvent event);
  void tokens(DeviceId device, WorkerEpoch epoch, std::vector<core::TokenEvent> tokens);
  void told(DeviceId device, ModelId model);
  /// The host is to go, or no longer: its manager hears that, and so does the next one.
  void leave(bool leaving);
  /// Whether a manager leads, and whether the host is to go.
  [[nodiscard]] bool led() const;
  [[nodiscard]] bool leaving() const;
  /// Those of gateways that run here.
  [[nodiscard]] std::size_t requests() const;
  /// As there is to see of them; named as the host names them.
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const;
  /// Whether nothing of a gateway runs here, and nothing is left for a manager to take away.
  [[nodiscard]] bool empty() const;
  /// What it can do about the models of that configuration.
  void offers(std::uint64_t revision, std::vector<host::Offer> offers);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::remote
