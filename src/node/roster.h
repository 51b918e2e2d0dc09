#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "cluster/registry.h"
#include "config/config.h"
#include "remote/remote_hosts.h"

namespace heddle::node {

/// Who the hosts and gateways of a cluster are: those that the configuration lists, or, where it
/// lists none, those that have joined by the registry. Loop thread only.
class Roster {
 public:
  /// @param registry  May be null where the configuration lists all.
  /// @param changed   Called when hosts or gateways are others than before. Not from within here.
  Roster(const boost::asio::any_io_executor& executor,
         const config::ClusterConfig& cluster,
         std::shared_ptr<cluster::Registry> registry,
         std::function<void()> changed);
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  /// By number. A host that has left, or whose record has expired, is not among them.
  [[nodiscard]] std::vector<remote::HostAddress> hosts() const;
  /// The number of the gateway that is called so; nothing: there is none.
  [[nodiscard]] std::optional<FrontId> gateway(const std::string& name) const;
  [[nodiscard]] std::size_t gateways() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether hosts, or gateways, of this cluster join by the registry.
[[nodiscard]] bool hosts_join(const config::ClusterConfig& cluster);
[[nodiscard]] bool gateways_join(const config::ClusterConfig& cluster);

}  // namespace heddle::node
