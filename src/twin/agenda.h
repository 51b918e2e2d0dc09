#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "base/time.h"
#include "sim/event_queue.h"

namespace heddle::twin {

/// Virtual time, and what is to happen in it. One thread.
class Agenda {
 public:
  [[nodiscard]] Instant now() const { return now_; }

  /// Not before now.
  void at(Instant when, std::function<void()> what) { queue_.push(when, std::move(what)); }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  /// So many things are to happen.
  [[nodiscard]] std::size_t size() const { return queue_.size(); }

  /// Lets the next thing happen. False when there is none.
  bool advance() {
    if (queue_.empty()) {
      return false;
    }
    auto next = queue_.pop();
    now_ = next.at;
    next.event();
    return true;
  }

 private:
  Instant now_{};
  sim::EventQueue<std::function<void()>> queue_{};
};

}  // namespace heddle::twin
