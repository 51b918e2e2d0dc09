#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/time.h"

namespace heddle::gateway {

/// Wakes the one coroutine that waits for it; remembers one wake-up while none does. Loop thread.
class Signal {
 public:
  explicit Signal(boost::asio::io_context& loop) : timer_(loop) {}

  void notify() {
    set_ = true;
    timer_.cancel();
  }

  /// Returns after notify(), or when `patience` has passed.
  boost::asio::awaitable<void> wait(Duration patience) {
    if (!set_) {
      timer_.expires_after(patience);
      co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    }
    set_ = false;
  }

  /// Returns after notify().
  boost::asio::awaitable<void> wait() {
    if (!set_) {
      timer_.expires_at(boost::asio::steady_timer::time_point::max());
      co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    }
    set_ = false;
  }

 private:
  boost::asio::steady_timer timer_;
  bool set_ = false;
};

}  // namespace heddle::gateway
