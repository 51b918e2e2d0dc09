#pragma once

#include <optional>
#include <string>

#include "core/manager/loads.h"
#include "core/manager/parts.h"

/// One instance more for a model that has too few: on a device, or, of a sharded model, on a block
/// of devices.
namespace heddle::core::manager {

/// The block that a sharded model could have beside those that it has; `device` leads it. What runs
/// there may be busy: then it was borne with for long enough (ManagerOptions::drain_after, counted
/// from when the model's requests that nobody bears began to wait, on average), has fewer requests
/// than these, and is no group nor external engine.
[[nodiscard]] std::optional<ReplicaPlace> block_for_replica(const State& state, ModelId model);

/// Where the model could get one instance more, as place_for_replica or block_for_replica have it.
[[nodiscard]] std::optional<ReplicaPlace> place_for_one_more(const State& state, ModelId model);

/// Loads it there; the block is claimed, and loaded once it is empty. False: something was done
/// with the model or there a moment ago, or the model claims a block already.
bool add_replica(const Parts& core,
                 ModelId model,
                 const ReplicaPlace& place,
                 const std::string& because);

}  // namespace heddle::core::manager
