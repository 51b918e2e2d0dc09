#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "net/address.h"
#include "net/host_link.h"
#include "net/identity.h"

namespace heddle::net {

struct ListenerOptions {
  HostLinkOptions link{};
  std::size_t pending_max = 64;  ///< Not greeted yet; with one more, the oldest is dropped.
};

/// Takes links from other hosts: only from processes of the own cluster, and of some roles. Loop
/// thread. Handlers run on the loop; they may destroy the listener, and none runs after that. Links
/// that were handed over go on without it.
class Listener {
 public:
  struct Handlers {
    /// A process has come and was found to be who it says. The link's start() is to be called
    /// within, or the link destroyed.
    std::function<void(std::unique_ptr<HostLink>, const Peer&)> on_peer{};
    /// Somebody was refused, or did not get as far; the peer knows why where it can be told. For
    /// logs. May be empty.
    std::function<void(const Error&)> on_refused{};
  };

  /// @param address  Numeric; port 0 is any that is free.
  /// @return kInvalidArgument for an address that is none, kUnavailable where it cannot be listened
  ///         at.
  static Result<std::unique_ptr<Listener>> open(const boost::asio::any_io_executor& executor,
                                                const Address& address,
                                                Self self,
                                                std::vector<Role> roles,
                                                Handlers handlers,
                                                const ListenerOptions& options = {});
  /// Drops whoever has not greeted yet.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] std::uint16_t port() const;

 private:
  class Impl;
  explicit Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::net
