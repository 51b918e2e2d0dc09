#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "node/self.h"
#include "sandbox/sandbox.h"

namespace boost::asio {
class io_context;
}

namespace heddle::node {

/// `heddle gateway`: serves HTTP for a cluster. It owns the requests of its clients, which a
/// manager has it send to hosts; without a manager those that run go on and others wait. Loop
/// thread only.
class GatewayNode {
 public:
  /// Serves on the addresses of `config`. Errors as gateway::Gateway::start.
  static Result<std::unique_ptr<GatewayNode>> create(boost::asio::io_context& loop,
                                                     const config::Config& config,
                                                     const NodeSelf& self,
                                                     Metrics& metrics);
  /// Ends links and connections: requests that run are given up.
  ~GatewayNode();
  GatewayNode(const GatewayNode&) = delete;
  GatewayNode& operator=(const GatewayNode&) = delete;

  /// The addresses that were bound.
  [[nodiscard]] const std::vector<config::ListenAddress>& addresses() const;
  /// Takes over what is the gateway's own of another configuration: keys, limits, certificate.
  void reload(const config::Config& config);
  /// Takes no more requests, and lets those that run end within `patience`.
  void drain(Duration patience, std::function<void()> done);

 private:
  class Impl;
  explicit GatewayNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::node
