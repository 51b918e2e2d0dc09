#pragma once

#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/time.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Wakes the one coroutine that waits for it; remembers one wake-up while none does. Loop thread.
class Signal {
 public:
  explicit Signal(boost::asio::io_context& loop) : loop_(loop) {}

  void notify() {
    set_ = true;
    if (timer_) {
      timer_->cancel();
    }
  }

  /// Returns after notify(), or when `patience` has passed.
  Task<void> wait(Duration patience) {
    if (!set_) {
      timer().expires_after(patience);
      co_await timer().async_wait(kAwait);
    }
    set_ = false;
  }

  /// Returns after notify().
  Task<void> wait() {
    if (!set_) {
      timer().expires_at(boost::asio::steady_timer::time_point::max());
      co_await timer().async_wait(kAwait);
    }
    set_ = false;
  }

 private:
  boost::asio::steady_timer& timer() { return timer_ ? *timer_ : timer_.emplace(loop_); }

  boost::asio::io_context& loop_;
  std::optional<boost::asio::steady_timer> timer_{};  ///< Most need none.
  bool set_ = false;
};

}  // namespace heddle::gateway
