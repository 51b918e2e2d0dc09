#pragma once

#include "base/result.h"

namespace heddle::gateway {

/// A client's request that runs, as whoever ends the server sees it.
class RunningRequest {
 public:
  virtual ~RunningRequest() = default;
  /// Makes it fail, whatever it waits for.
  virtual void fail(Error error) = 0;
};

}  // namespace heddle::gateway
