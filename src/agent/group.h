#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "rpc/descriptor.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// What goes beside rpc::JoinGroup to each rank of a new group, by rank: the memory through which
/// they exchange data, and the sockets by which rank 0 leads. kResourceExhausted, as
/// collective::SharedArea::create and rpc::socket_pair.
Result<std::vector<std::vector<rpc::Descriptor>>> connect_group(std::int64_t ranks);

/// What goes beside rpc::JoinPipe to each stage of a new pipeline: a socket from the stage before
/// and one to the stage behind it. kResourceExhausted, as rpc::socket_pair.
Result<std::vector<std::vector<rpc::Descriptor>>> connect_pipe(std::int64_t stages);

/// What asks a worker to be one of `ranks` in a group, or of so many stages in a pipeline.
[[nodiscard]] rpc::ToWorker join_message(bool pipe,
                                         ModelId model,
                                         std::int64_t rank,
                                         std::int64_t ranks);

}  // namespace heddle::agent
