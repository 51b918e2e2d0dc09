#pragma once

#include "base/ids.h"

namespace heddle::serving {

/// Where a request can be: one life of one device's worker.
struct Place {
  DeviceId device{};
  WorkerEpoch epoch{};
  friend bool operator==(const Place&, const Place&) = default;
};

}  // namespace heddle::serving
