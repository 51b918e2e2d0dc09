#pragma once

#include "base/ids.h"

namespace heddle::core {

/// One life of a worker.
struct Life {
  DeviceId device{};
  WorkerEpoch epoch{};
  friend bool operator==(const Life&, const Life&) = default;
};

}  // namespace heddle::core
