#pragma once

#include <cstdint>
#include <mutex>
#include <stop_token>

#include "base/time.h"

namespace heddle::fetch {

/// Holds the threads of one transfer to so many bytes a second, together.
class RateLimit {
 public:
  /// @param bytes_per_second  0: no limit.
  explicit RateLimit(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}

  /// How long whoever has taken `bytes` at `now` is to wait. What nobody took in the last quarter
  /// of a second is not made up for.
  [[nodiscard]] Duration take(std::uint64_t bytes, Instant now);
  /// Takes them and waits, or until a stop.
  void take_and_wait(std::uint64_t bytes, const std::stop_token& stop);

 private:
  std::uint64_t rate_;
  std::mutex mutex_{};
  Instant next_{};  ///< When what was taken so far is paid for.
};

}  // namespace heddle::fetch
