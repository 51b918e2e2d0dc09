#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "base/result.h"
#include "base/time.h"
#include "net/credentials.h"
#include "net/identity.h"
#include "net/tls_stream.h"
#include "rpc/greet.h"
#include "rpc/link.h"

namespace heddle::net {

/// What a process says of itself, beside what its certificate says.
struct Self {
  std::shared_ptr<Credentials> credentials{};
  std::uint64_t incarnation = 0;  ///< Raised at each start of this name.
  std::string build{};            ///< The version of the program.
  std::string isa{};              ///< What the processor offers.
  rpc::Versions versions = rpc::host_versions();
  rpc::LinkUse use = rpc::LinkUse::kOrders;  ///< Of links that it makes.
};

/// Whom a process links with. The cluster must be its own.
struct Wanted {
  std::vector<Role> roles{};  ///< Any of these.
  std::string name{};         ///< Empty: any.
};

/// Who is at the other end. Its certificate says the identity, itself the rest.
struct Peer {
  Identity identity{};
  std::uint64_t incarnation = 0;
  std::uint32_t version = 0;  ///< Which both speak, of what hosts say to each other.
  std::string build{};
  std::string isa{};
  std::string address{};  ///< "10.0.0.2:7000": where its end of the connection is.
  rpc::LinkUse use = rpc::LinkUse::kOrders;  ///< What the link is for, where the peer made it.
};

struct HostLinkOptions {
  rpc::LinkLimits limits{};
  Duration greeting = std::chrono::seconds(5);  ///< From the connection to the end of greeting.
  Duration beat = std::chrono::milliseconds(250);
  /// After so long without a byte from the peer the link is closed. Counted in beats of this
  /// process, so that one which stood still does not take that for the peer's silence.
  Duration silence = std::chrono::milliseconds(1250);
  /// How long the peer may take to hear the last words and to close.
  Duration farewell = std::chrono::seconds(1);
};

/// A link to a process on another host, over TCP and TLS: as rpc::Link without descriptors, and
/// known to be who it says. Loop thread. Handlers run on the loop, never from within a call to the
/// link, and none runs after the link is destroyed; a handler may destroy it.
class HostLink {
 public:
  /// Told once whether the peer is who is wanted. Errors name both sides, what was wrong and what
  /// would be right: kFailedPrecondition where somebody must change something, kUnavailable where
  /// the connection was cut or nothing came in time, kCorrupt for what is no greeting.
  using Opened = std::function<void(const Result<Peer>&)>;

  /// Takes over a connected socket and begins the handshake.
  HostLink(boost::asio::ip::tcp::socket socket,
           Side side,
           Self self,
           Wanted wanted,
           Opened opened,
           const HostLinkOptions& options = {});
  /// As end("it has no more use for the link").
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  /// Who hears from the peer. To be called within `opened`, where that is told of a peer.
  void start(rpc::Link::Handlers handlers);

  /// As rpc::Link::send. kUnavailable also before it is open.
  Result<void> send(std::string payload);
  /// As rpc::Link::queued_bytes.
  [[nodiscard]] std::size_t queued_bytes() const;
  /// Tells the peer why, after what was sent before, and closes. No handler runs any more.
  void end(const std::string& why);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::net
