#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/time.h"

namespace heddle::gateway {

/// A moment at which something is done unless it was put off or taken back before. Connections do
/// that for every read and write, so it costs two loads and a store: the timer behind it is left to
/// fire too early, and then set again. Loop thread.
class Deadline {
 public:
  Deadline(boost::asio::io_context& loop, std::function<void()> act)
      : state_(std::make_shared<State>(loop, std::move(act))) {}
  ~Deadline() {
    state_->act = nullptr;
    state_->timer.cancel();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  void set(Duration patience) {
    state_->at = steady_now() + patience;
    if (state_->at < state_->fires) {
      arm(state_);
    }
  }
  void clear() { state_->at = kNever; }

 private:
  static constexpr Instant kNever = Instant::max();

  struct State {
    State(boost::asio::io_context& loop, std::function<void()> what)
        : timer(loop), act(std::move(what)) {}

    boost::asio::steady_timer timer;
    std::function<void()> act;
    Instant at = kNever;
    Instant fires = kNever;  ///< When the timer will.
  };

  static void arm(const std::shared_ptr<State>& state) {
    state->fires = state->at;
    state->timer.expires_after(state->at - steady_now());
    state->timer.async_wait([state, mine = state->fires](const boost::system::error_code& stopped) {
      // A timer that has fired cannot be stopped any more, but it can be late.
      if (stopped || !state->act || state->fires != mine) {
        return;
      }
      state->fires = kNever;
      if (state->at != kNever && steady_now() < state->at) {
        arm(state);
      } else if (std::exchange(state->at, kNever) != kNever) {
        const std::function<void()> act = state->act;  // It may end what has it.
        act();
      }
    });
  }

  std::shared_ptr<State> state_;
};

}  // namespace heddle::gateway
