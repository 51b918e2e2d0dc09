#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "net/address.h"
#include "net/connector.h"
#include "net/host_link.h"
#include "remote/caller.h"

namespace heddle::remote {

/// A process that this one links to, and links to again whenever the link has ended, as those have
/// it that it speaks to. Loop thread.
class Callee {
 public:
  /// Called on the loop, never from within a call.
  struct Handlers {
    std::function<void()> on_up{};
    /// What it says. An Error ends the link with that reason.
    std::function<Result<void>(const std::string& payload)> on_message{};
    /// The link has ended, or a try to have one; the next follows.
    std::function<void(const Error& why)> on_down{};
  };

  /// Handlers may destroy the callee; none runs after that.
  Callee(const boost::asio::any_io_executor& executor,
         const net::Address& address,
         net::Self self,
         net::Wanted wanted,
         Handlers handlers,
         const net::ConnectorOptions& options = {},
         std::size_t queued_most = kQueuedMost);
  /// Ends the link.
  ~Callee();
  Callee(const Callee&) = delete;
  Callee& operator=(const Callee&) = delete;

  /// Queues a message; false where the link is down. One that takes too little has its link ended.
  bool send(std::string payload);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
