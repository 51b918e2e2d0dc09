#pragma once

#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.h"

namespace heddle::core {

/// How a live shell lets its core hear events: one after the other, and what carrying out commands
/// gives rise to after all of them, never within. Used by one thread.
template <class Core, class Event, class Command>
class Hearing {
 public:
  /// Lets `core` hear `event` and all that follows from it: `now()` is asked for each, then
  /// `on_step(at, event, commands)` is told, then `execute(command)` is called for each command.
  /// False when called from within that: the event is heard, but only once this has returned.
  template <class Now, class OnStep, class Execute>
  bool hear(
      Core& core, Event event, const Now& now, const OnStep& on_step, const Execute& execute) {
    events_.push_back(std::move(event));
    if (hearing_) {
      return false;
    }
    hearing_ = true;
    while (!events_.empty()) {
      const Event next = std::move(events_.front());
      events_.pop_front();
      commands_.clear();
      const Instant at = now();
      core.step(at, next, commands_);
      on_step(at, next, commands_);
      for (Command& command : commands_) {
        std::visit(execute, command);
      }
    }
    hearing_ = false;
    return true;
  }

 private:
  std::deque<Event> events_{};
  std::vector<Command> commands_{};  ///< Of one event; kept for its memory.
  bool hearing_ = false;
};

}  // namespace heddle::core
