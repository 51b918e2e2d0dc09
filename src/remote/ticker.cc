#include "remote/ticker.h"

#include <utility>

#include <boost/asio/steady_timer.hpp>

namespace heddle::remote {

namespace asio = boost::asio;

class Ticker::Impl : public std::enable_shared_from_this<Ticker::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       std::function<void()> act,
       const TickerOptions& options)
      : act_(std::move(act)), options_(options), timer_(executor) {}

  void begin() {
    acted_ = asio::steady_timer::clock_type::now();
    wait(options_.most);
  }

  void soon() {
    if (!std::exchange(hurried_, true)) {
      wait(options_.least);
    }
  }

  void stop() {
    stopped_ = true;
    timer_.cancel();
  }

 private:
  /// Until so long after the last call. Ends the wait before.
  void wait(Duration pause) {
    timer_.expires_at(acted_ + pause);
    timer_.async_wait([self = shared_from_this(), turn = ++turn_](const auto& error) {
      if (!error && turn == self->turn_ && !self->stopped_) {
        self->act();
      }
    });
  }

  void act() {
    hurried_ = false;
    acted_ = asio::steady_timer::clock_type::now();
    wait(options_.most);
    act_();
  }

  const std::function<void()> act_;
  const TickerOptions options_;
  asio::steady_timer timer_;
  asio::steady_timer::time_point acted_{};
  std::uint64_t turn_ = 0;  ///< Of the waits; one that is over may have been called off too late.
  bool hurried_ = false;
  bool stopped_ = false;
};

Ticker::Ticker(const asio::any_io_executor& executor,
               std::function<void()> act,
               const TickerOptions& options)
    : impl_(std::make_shared<Impl>(executor, std::move(act), options)) {
  impl_->begin();
}

Ticker::~Ticker() {
  impl_->stop();
}

void Ticker::soon() {
  impl_->soon();
}

}  // namespace heddle::remote
