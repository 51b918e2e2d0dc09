#pragma once

#include <memory>
#include <optional>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/time.h"
#include "host/host_port.h"
#include "net/host_link.h"
#include "remote/stream_options.h"

namespace heddle::remote {

/// A host's external engines, for gateways on other machines: connects to an engine for whoever
/// opens a stream, and passes bytes on both ways. What a gateway has open is bound to its link for
/// engines, and ends with that. Loop thread only.
class EngineService {
 public:
  /// @param port  Knows where engines listen; it outlives the service.
  EngineService(boost::asio::any_io_executor executor,
                const host::HostPort& port,
                const StreamOptions& options = {});
  /// Ends all links and streams.
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  /// Takes a gateway's link for engines: net::Listener's on_peer. A second one of the same gateway
  /// replaces the first.
  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer);

  /// When the model's engine last sent something of an answer, or was last sent something; nothing
  /// where nobody waits for its answer.
  [[nodiscard]] std::optional<Instant> silent_since(ModelId model) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
