#pragma once

#include "agent/agent.h"
#include "base/result.h"
#include "device/cpu/arena.h"

namespace heddle::agent {

/// The memory of the host's cache and of all devices that are part of the host; says how far it is,
/// as that may take seconds. Errors as device::Arena::create.
Result<device::Arena> make_arena(const AgentSetup& setup);

}  // namespace heddle::agent
