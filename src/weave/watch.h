#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/result.h"
#include "base/thread.h"
#include "base/time.h"
#include "device/device.h"

namespace heddle::weave {

/// A thread that looks from time to time after streams that wait for a flag, as whoever waits for
/// the streams cannot.
class Watch {
 public:
  /// Calls `look` every `every` while it says that there is more to look after. Begins at the first
  /// wake().
  Watch(Duration every, std::function<bool()> look) : every_(every), look_(std::move(look)) {}
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// kUnavailable where the system has no thread left.
  Result<void> start();
  /// There is something to look after. Any thread.
  void wake();

 private:
  void run();

  Duration every_;
  std::function<bool()> look_;
  std::mutex mutex_{};
  std::condition_variable changed_{};
  bool busy_ = false;  ///< Guarded by mutex_, as is over_.
  bool over_ = false;
  Thread thread_{};
};

/// Raises `flag` beyond `last`, where it is not there yet, to a number that is no ticket: a stream
/// that waits for it goes on. A device may raise the flag meanwhile.
void let_go(device::Flag& flag, std::uint32_t last);

/// Whether `ticket` comes before `other`, counting round.
[[nodiscard]] inline bool before(std::uint32_t ticket, std::uint32_t other) {
  return static_cast<std::int32_t>(ticket - other) < 0;
}

}  // namespace heddle::weave
