#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/time.h"

namespace heddle::manager {

/// How late the server's loop is for what was to happen at a certain time: a histogram, and a line
/// in the log where it stood still. The cause may be work on the loop, too few cores, or a signal.
/// What is made before the loop runs, such as an arena, holds up nobody and is not counted. Loop
/// thread only; `metrics` lives longer.
class LoopLag {
 public:
  static constexpr Duration kPeriod = std::chrono::milliseconds(500);
  static constexpr Duration kStood = std::chrono::seconds(1);

  LoopLag(const boost::asio::any_io_executor& executor, Metrics& metrics)
      : timer_(executor),
        lags_(metrics.histogram("heddle_loop_lag_seconds",
                                "How late the server's loop was for its timer.",
                                {},
                                latency_bounds())) {
    boost::asio::post(executor, [this, alive = std::weak_ptr<const bool>(alive_)] {
      if (!alive.expired()) {
        wait();
      }
    });
  }

 private:
  void wait() {
    due_ = steady_now() + kPeriod;
    timer_.expires_after(kPeriod);
    timer_.async_wait([this, alive = std::weak_ptr<const bool>(alive_)](const auto& error) {
      // One whose time has come is not cancelled any more when the object goes.
      if (error || alive.expired()) {
        return;
      }
      const Duration lag = std::max(steady_now() - due_, Duration{});
      lags_.observe(to_seconds(lag));
      if (lag >= kStood) {
        log::warning("the server's loop stood still: it was stopped, or has too much to do",
                     {{"seconds", to_seconds(lag)}});
      }
      wait();
    });
  }

  boost::asio::steady_timer timer_;
  Metrics::Histogram lags_;
  Instant due_{};
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace heddle::manager
