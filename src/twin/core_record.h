#pragma once

#include <vector>

#include "base/time.h"

namespace heddle::twin {

/// All that a core heard and wanted, for replay.
template <class Event, class Command>
struct CoreRecord {
  struct Heard {
    Instant at{};
    Event event{};
  };
  std::vector<Heard> heard{};
  std::vector<Command> wanted{};
};

}  // namespace heddle::twin
