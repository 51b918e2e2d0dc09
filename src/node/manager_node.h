#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/metrics.h"
#include "base/result.h"
#include "config/config.h"
#include "node/leader.h"
#include "node/self.h"

namespace heddle::node {

/// `heddle manager`: decides for a cluster. Loop thread only.
class ManagerNode {
 public:
  /// Listens for gateways, and leads: at once where the configuration names no registry, else while
  /// it is elected there. Errors as Leader::create, net::Listener::open and cluster::open_registry.
  static Result<std::unique_ptr<ManagerNode>> create(const boost::asio::any_io_executor& executor,
                                                     ClusterText cluster,
                                                     const NodeSelf& self,
                                                     Metrics& metrics);
  /// Ends all links; what runs on hosts goes on.
  ~ManagerNode();
  ManagerNode(const ManagerNode&) = delete;
  ManagerNode& operator=(const ManagerNode&) = delete;

  /// What is wrong now, for people: nobody leads. One that stands by is as it should be.
  [[nodiscard]] std::vector<std::string> troubles() const;
  /// Where it listens.
  [[nodiscard]] std::uint16_t port() const;
  /// As Leader has it. One that stands by takes over anything, for when it leads.
  Result<void> reconfigure(ClusterText cluster);
  /// Leads no longer, so that another does at once; `done` is called when that is said.
  void leave(std::function<void()> done);

 private:
  class Impl;
  explicit ManagerNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::node
