#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "core/agent_core.h"
#include "core/messages.h"
#include "rpc/descriptor.h"

namespace heddle::agent {

/// This host's end of the connection from a stage of a pipeline to the one behind it, where one of
/// the two is on another host.
struct Edge {
  std::int64_t stage = 0;    ///< The one before.
  core::GroupHost peer{};    ///< The host of the other end.
  bool begins = false;       ///< The stage before is here. Its host links with the other.
  rpc::Descriptor socket{};  ///< The worker has its other end.
};

/// What has become of the edges of a group, all together.
using EdgeNews = std::variant<core::GroupLinked, core::GroupCut>;

/// Who connects stages on this host with those on others. Loop thread only.
class EdgePort {
 public:
  virtual ~EdgePort() = default;
  /// Connects the workers' sockets with those of the other hosts, and passes on what comes over
  /// either. EdgeNews follows, never from within the call. With the first edge that ends all of
  /// the group do. That is news, unless the worker here ended it.
  virtual void connect(core::GroupId group, std::vector<Edge> edges) = 0;
  /// Ends the group's edges. Nothing more is said of it.
  virtual void leave(core::GroupId group) = 0;
};

}  // namespace heddle::agent
