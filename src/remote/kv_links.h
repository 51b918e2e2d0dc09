#pragma once

#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "agent/kv_exchange.h"
#include "base/time.h"
#include "net/connector.h"
#include "net/host_link.h"
#include "rpc/messages.h"

namespace heddle::remote {

struct KvLinksOptions {
  /// A host that owes answers and gives none for so long has its link ended.
  Duration silence = std::chrono::seconds(1);
  Duration idle = std::chrono::seconds(10);  ///< A link that nobody uses ends after so long.
  net::ConnectorOptions connector{.connecting = std::chrono::seconds(1)};
};

/// KV between the workers of two hosts: one link to each host that is asked, made when it is. Asks
/// and answers are those of workers (rpc::KvAsk). Loop thread only.
class KvLinks {
 public:
  /// @param give  What another host asks of a device of this one; answers in any case.
  KvLinks(boost::asio::any_io_executor executor,
          net::Self self,
          std::function<void(rpc::KvAsk, agent::KvAnswer)> give,
          const KvLinksOptions& options = {});
  /// Ends all links; what is waited for is not answered.
  ~KvLinks();
  KvLinks(const KvLinks&) = delete;
  KvLinks& operator=(const KvLinks&) = delete;

  /// Asks the host that it names. Answered in any case, not from within the call: with nothing
  /// where the host is silent or cannot be reached.
  void ask(const rpc::KvAsk& ask, agent::KvAnswer answer);
  /// Takes another agent's link: net::Listener's on_peer.
  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
