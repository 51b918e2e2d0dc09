#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "base/time.h"
#include "core/messages.h"
#include "fetch/peer.h"
#include "net/connector.h"
#include "net/host_link.h"

namespace heddle::remote {

struct PeerCachesOptions {
  /// A host that owes answers and gives none for so long has its link ended.
  Duration silence = std::chrono::seconds(5);
  Duration idle = std::chrono::seconds(10);  ///< A link that nobody uses ends after so long.
  net::ConnectorOptions connector{.connecting = std::chrono::seconds(1)};
};

/// The caches of other hosts, for this host's fetches: one link to each host that is asked, made
/// when it is. Loop thread, but for what it gives.
class PeerCaches {
 public:
  PeerCaches(boost::asio::any_io_executor executor,
             net::Self self,
             const PeerCachesOptions& options = {});
  /// Ends all links; what is waited for fails with kUnavailable.
  ~PeerCaches();
  PeerCaches(const PeerCaches&) = delete;
  PeerCaches& operator=(const PeerCaches&) = delete;

  /// The cache of the host whose agent is there. May outlive this. Any thread. Of each read at most
  /// 2 MiB are asked for and not taken.
  [[nodiscard]] std::shared_ptr<fetch::Peer> peer(const core::GroupHost& host) const;

 private:
  class Impl;
  class CachePeer;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
