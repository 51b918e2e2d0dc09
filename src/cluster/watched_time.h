#pragma once

#include <algorithm>
#include <optional>

#include "base/time.h"

namespace heddle::cluster {

/// Time that somebody has really watched pass. Who sleeps longer than it meant to, as its process
/// was stopped or its clock jumped, has not watched, and must not call others silent for that.
class WatchedTime {
 public:
  /// The sum after a look at this time.
  /// @param step_max  What counts at most since the last one.
  Duration look(Instant now, Duration step_max) {
    if (last_) {
      sum_ += std::clamp<Duration>(now - *last_, Duration::zero(), step_max);
    }
    last_ = now;
    return sum_;
  }
  /// Nothing counts from the last look to the next.
  void look_away() { last_.reset(); }
  [[nodiscard]] Duration sum() const { return sum_; }

 private:
  std::optional<Instant> last_{};
  Duration sum_{};
};

}  // namespace heddle::cluster
