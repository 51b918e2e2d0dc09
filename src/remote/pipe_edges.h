#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "agent/edges.h"
#include "base/time.h"
#include "net/connector.h"
#include "net/host_link.h"

namespace heddle::remote {

struct PipeEdgesOptions {
  /// How long a group's edges may take to be connected, and a link to be asked for here.
  Duration patience = std::chrono::seconds(5);
  std::size_t queued_full = std::size_t{1} << 20U;  ///< As StreamOptions has it.
  std::size_t waiting_most =
      64;  ///< Links that nobody has asked for yet; with more, the oldest ends.
  net::ConnectorOptions connector{};
};

/// The edges of this host's pipes to other hosts. The agent of each stage links with that of the
/// next, one link for an edge, and both pass bytes on between it and their worker's socket. Where
/// one of the three takes too little, no more is read of the one before it, so a worker feels how
/// fast the next one is. Loop thread only.
class PipeEdges final : public agent::EdgePort {
 public:
  /// @param heard  Called on the loop, never from within a call.
  PipeEdges(boost::asio::any_io_executor executor,
            net::Self self,
            std::function<void(const agent::EdgeNews&)> heard,
            const PipeEdgesOptions& options = {});
  /// Ends all edges; nobody here is told.
  ~PipeEdges() override;
  PipeEdges(const PipeEdges&) = delete;
  PipeEdges& operator=(const PipeEdges&) = delete;

  void connect(core::GroupId group, std::vector<agent::Edge> edges) override;
  void leave(core::GroupId group) override;
  /// Takes another agent's link: net::Listener's on_peer. One for an edge that this host does not
  /// know yet waits for that, and is refused when it has waited too long.
  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
