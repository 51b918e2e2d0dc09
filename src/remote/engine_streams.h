#pragma once

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "net/carried_connection.h"
#include "net/host_link.h"
#include "remote/remote_hosts.h"
#include "remote/stream_options.h"

namespace heddle::remote {

/// A gateway's connections to external engines of hosts on other machines. All to one host go over
/// one link of their own, which is made when the first is wanted, so that none holds up tokens.
/// Loop thread only.
class EngineStreams {
 public:
  EngineStreams(boost::asio::any_io_executor executor,
                net::Self self,
                const StreamOptions& options = {});
  /// Ends all; nobody is told.
  ~EngineStreams();
  EngineStreams(const EngineStreams&) = delete;
  EngineStreams& operator=(const EngineStreams&) = delete;

  /// The hosts there are from now on. Links to those that are as they were go on.
  void set_hosts(const std::vector<HostAddress>& hosts);

  /// As net::Carry. While the host is not linked, what comes of the next try is waited for.
  void open(HostId host,
            ModelId model,
            std::function<void(std::variant<net::CarriedConnection, net::CarriedEnd>)> done);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
