#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/edges.h"
#include "agent/host_model.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/agent_core.h"
#include "rpc/descriptor.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// What connects the workers of a new group.
struct GroupEnds {
  /// By rank, of those on this host: what goes beside rpc::JoinGroup, the memory through which
  /// ranks exchange data and the sockets by which rank 0 leads; or beside rpc::JoinPipe, a socket
  /// from the stage before and one to the stage behind it.
  std::vector<std::vector<rpc::Descriptor>> members{};
  /// Of a pipeline: what is to be connected with other hosts.
  std::vector<Edge> edges{};
};

/// @param pipe  They are stages of a pipeline. Only those may be on several hosts, which `command`
///              then names.
/// @param here  Whether a device is one of this host.
/// kResourceExhausted, as collective::SharedArea::create and rpc::socket_pair.
Result<GroupEnds> connect_members(const core::ConnectGroup& command,
                                  bool pipe,
                                  const std::function<bool(DeviceId)>& here);

/// What asks a worker to be one of `ranks` in a group, or of so many stages in a pipeline.
[[nodiscard]] rpc::ToWorker join_message(const HostModel& model,
                                         std::int64_t rank,
                                         std::int64_t ranks);

}  // namespace heddle::agent
