#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/rng.h"
#include "base/time.h"

namespace heddle::net {

struct BackoffOptions {
  Duration first = std::chrono::milliseconds(100);
  Duration most = std::chrono::seconds(2);
  std::uint64_t seed = 0;
};

/// How long to wait before the next try of something that fails: from `first` on twice as long each
/// time, up to `most`, of which the upper half is drawn by chance, so that many do not come at
/// once. Equal seeds give equal pauses.
class Backoff {
 public:
  explicit Backoff(const BackoffOptions& options)
      : first_(options.first), most_(options.most), pause_(options.first), rng_(options.seed) {
    HEDDLE_CHECK(first_ > Duration(1) && first_ <= most_);
  }

  /// From half the length that it has come to, to all of it.
  Duration next() {
    const Duration longest = pause_;
    pause_ = std::min(most_, pause_ * 2);
    const std::int64_t half = longest.count() / 2;
    return Duration(longest.count() - half +
                    static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(half) + 1)));
  }
  /// It has worked: the next pause is of the first length.
  void reset() { pause_ = first_; }

 private:
  Duration first_;
  Duration most_;
  Duration pause_;  ///< Of the next try, at its longest.
  Rng rng_;
};

}  // namespace heddle::net
