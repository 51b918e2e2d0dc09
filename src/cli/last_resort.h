#pragma once

#include <condition_variable>
#include <mutex>

#include "base/thread.h"
#include "base/time.h"

namespace heddle::cli {

/// Ends the process, with a line on stderr and status 1, where it does not end by itself in time: a
/// thread that reads from a disk that hangs, or a long computation, is waited for by nobody. What
/// it leaves needs no saving: workers die with it, and the next run ends the engines it left.
class LastResort {
 public:
  LastResort() = default;
  /// The process ends by itself.
  ~LastResort();
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

  /// From now on this object has so long to live. Once.
  void arm(Duration patience);

 private:
  void wait(Duration patience);

  std::mutex mutex_{};
  std::condition_variable changed_{};
  bool ended_ = false;  ///< Guarded by mutex_.
  Thread thread_{};
};

}  // namespace heddle::cli
