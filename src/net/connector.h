#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "net/address.h"
#include "net/backoff.h"
#include "net/host_link.h"

namespace heddle::net {

struct ConnectorOptions {
  HostLinkOptions link{};
  Duration connecting = std::chrono::seconds(3);  ///< To find the address and reach it.
  BackoffOptions backoff{};
};

/// Keeps a link to one address up: connects, and where that fails or the link ends, again after a
/// pause. Loop thread. Handlers run on the loop, never from within a call; one may destroy the
/// connector, and none runs after that.
class Connector {
 public:
  struct Handlers {
    /// The link is up. What the peer was sent over the one before may not have arrived.
    std::function<void(const Peer&)> on_up{};
    /// The link has ended, or a try to have one; the next follows.
    std::function<void(const Error&)> on_down{};
    std::function<void(rpc::Frame)> on_frame{};
    std::function<void()> on_drained{};  ///< As rpc::Link's. May be empty.
  };

  Connector(const boost::asio::any_io_executor& executor,
            Address address,
            Self self,
            Wanted wanted,
            Handlers handlers,
            const ConnectorOptions& options = {});
  /// Ends the link as ~HostLink does.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// As rpc::Link::send. kUnavailable while the link is down; then nothing was queued.
  Result<void> send(std::string payload);
  /// As rpc::Link::queued_bytes.
  [[nodiscard]] std::size_t queued_bytes() const;
  /// Tells the peer why and ends the link, if it is up: on_down follows, and the next try.
  void end(const std::string& why);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::net
