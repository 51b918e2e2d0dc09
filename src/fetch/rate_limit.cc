#include "fetch/rate_limit.h"

#include <algorithm>
#include <condition_variable>

#include "base/clock.h"

namespace heddle::fetch {
namespace {

constexpr Duration kCredit = std::chrono::milliseconds(250);

}  // namespace

Duration RateLimit::take(std::uint64_t bytes, Instant now) {
  if (rate_ == 0) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  next_ = std::max(next_, now - kCredit) +
          from_seconds(static_cast<double>(bytes) / static_cast<double>(rate_));
  return std::max(Duration{}, next_ - now);
}

void RateLimit::take_and_wait(std::uint64_t bytes, const std::stop_token& stop) {
  const Duration wait = take(bytes, steady_now());
  if (wait > Duration{}) {
    std::mutex mutex;
    std::condition_variable_any woken;
    std::unique_lock lock(mutex);
    (void)woken.wait_for(lock, stop, wait, [] { return false; });
  }
}

}  // namespace heddle::fetch
