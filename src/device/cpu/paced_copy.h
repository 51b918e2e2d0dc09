#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace heddle::device {

/// A link of limited bandwidth. Deadlines are absolute, so that what one wait oversleeps the next
/// makes up for; time in which nothing was sent is not made up for. Used by one thread.
class Pacer {
 public:
  /// 0: unlimited.
  explicit Pacer(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  /// Begins a transfer: earlier idle time gives no credit.
  void begin();
  /// Sleeps until `bytes` more of the transfer could have gone through.
  void wait(std::size_t bytes);
  /// A piece that takes about 5 ms, so that cancelling and progress are prompt.
  [[nodiscard]] std::size_t piece_bytes() const;

 private:
  std::uint64_t bytes_per_second_;
  std::chrono::steady_clock::time_point ready_{};  ///< When all so far is through.
};

/// Copies at the pace of `link`. Looks at `cancel` between pieces: kCancelled leaves `target`
/// partly written.
Result<void> paced_copy(std::byte* target,
                        const std::byte* source,
                        std::size_t bytes,
                        Pacer& link,
                        const std::atomic<bool>& cancel);

}  // namespace heddle::device
