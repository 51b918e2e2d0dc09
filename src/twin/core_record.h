#pragma once

#include <vector>

#include "base/time.h"

namespace heddle::twin {

/// What a core heard, and what it wanted then.
template <class Event, class Command>
struct CoreStep {
  Instant at{};
  Event event{};
  std::vector<Command> commands{};
};

/// All of it, in order.
template <class Event, class Command>
using CoreRecord = std::vector<CoreStep<Event, Command>>;

}  // namespace heddle::twin
