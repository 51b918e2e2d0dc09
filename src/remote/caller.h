#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "net/host_link.h"

namespace heddle::remote {

/// Most bytes that may wait for a process to take them; then it is of no use as it is.
inline constexpr std::size_t kQueuedMost = std::size_t{64} << 20U;

/// A process that has linked to this one, as those have it that it speaks to. Loop thread.
class Caller {
 public:
  struct Handlers {
    /// What it says. An Error ends the link with that reason.
    std::function<Result<void>(const std::string& payload)> on_message{};
    /// The link has ended, and not by end(). Called once, on the loop, never from within a call.
    std::function<void(const Error& why)> on_gone{};
    /// It has taken all that waited. May be empty.
    std::function<void()> on_drained{};
  };

  /// Takes the link over, within net::Listener's on_peer. Handlers may destroy the caller; none
  /// runs after that.
  Caller(const boost::asio::any_io_executor& executor,
         std::unique_ptr<net::HostLink> link,
         net::Peer peer,
         Handlers handlers,
         std::size_t queued_most = kQueuedMost);
  /// As end("it has no more use for the link").
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  [[nodiscard]] const net::Peer& peer() const;
  /// Queues a message, unless the link has ended. One that takes too little has its link ended.
  void send(std::string payload);
  [[nodiscard]] std::size_t queued_bytes() const;
  /// Tells the peer why, after what was sent before, and closes. No handler runs any more.
  void end(const std::string& why);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
