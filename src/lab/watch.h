#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"
#include "lab/counters.h"

namespace heddle::lab {

/// What a server counted by one moment.
struct Sample {
  Instant at{};
  Counters counters{};
};

/// Asks a server for what it exposes at /metrics, again and again, in a thread of its own.
class Watch {
 public:
  /// Begins. `server` is its root: no path.
  Watch(HttpAddress server, Duration interval);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Asks once more, ends, and gives all that was seen, oldest first. What could not be had is
  /// missing.
  std::vector<Sample> finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// One request to a server, waited for: GET where `body` is empty, else POST. The body of an answer
/// with status 200; kUnavailable, kDeadlineExceeded, kFailedPrecondition with what else it said.
Result<std::string> ask(const HttpAddress& server,
                        const std::string& path,
                        const std::string& body,
                        Duration patience);

}  // namespace heddle::lab
