#pragma once

#include <cstdint>
#include <map>
#include <variant>

#include "base/ids.h"
#include "core/agent_core.h"
#include "core/manager/events.h"
#include "twin/contents.h"
#include "twin/stage_messages.h"

/// What managers, hosts and gateways of a cluster say to each other, as far as it decides anything:
/// remote/messages.h has all of it.
namespace heddle::twin {

/// From whoever links, first: it takes part from now on.
struct Greet {};
/// Manager to host, first.
struct Lead {
  std::uint64_t term = 0;
};
/// Manager to host: the models there are. Answered by Offers.
struct Configuration {
  std::uint64_t revision = 0;
  core::AgentModels models{};
};
/// Host to its manager: what it knows follows, then HostKnown.
struct HostHere {};
struct HostKnown {};
struct Offers {
  core::AgentModels models{};
};
/// Host to gateway, first.
struct Lives {};
/// Host to gateway, after all that the life has said of its requests.
struct LifeEnded {
  Life life{};
};
/// Manager to gateway: the models that are served, and the most tokens that each may have.
struct Served {
  std::map<ModelId, std::int64_t> tokens_max{};
  friend bool operator==(const Served&, const Served&) = default;
};

using Message = std::variant<Greet,
                             Lead,
                             Configuration,
                             HostHere,
                             HostKnown,
                             Offers,
                             Lives,
                             LifeEnded,
                             Served,
                             core::ManagerEvent,
                             core::AgentEvent,
                             core::TellWorker,
                             core::Dispatch,
                             core::Hold,
                             core::FailRequest,
                             core::AdminDone,
                             StageMessage>;

}  // namespace heddle::twin
