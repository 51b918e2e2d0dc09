#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/result.h"

#include <pthread.h>

namespace heddle {

/// A thread that may fail to start, as processes and threads are limited: in that it differs from
/// std::jthread. Joined when this object ends.
class Thread {
 public:
  struct Options {
    std::string name{};           ///< At most 15 bytes, as the system shows it.
    std::size_t stack_bytes = 0;  ///< 0: what the system gives, `ulimit -s`.
    int nice = 0;                 ///< How far it gives way to others; see nice(2).
  };

  /// kUnavailable where the system has no thread left; the message says which limit was met.
  static Result<Thread> start(const Options& options, std::function<void()> body);

  Thread() = default;
  ~Thread() { join(); }
  Thread(Thread&& other) noexcept
      : handle_(other.handle_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept {
    if (this != &other) {
      join();
      handle_ = other.handle_;
      joinable_ = std::exchange(other.joinable_, false);
    }
    return *this;
  }

  /// Waits for its end. Nothing where there is none.
  void join();

 private:
  pthread_t handle_{};
  bool joinable_ = false;
};

/// Whether so many threads can be had at once: they are started, and ended again. For those of a
/// library that leaves no way out where some of a pool's threads cannot be started.
[[nodiscard]] Result<void> try_threads(std::size_t count);

/// What to say where `what` could not be started for want of a process or thread: why, the limit of
/// this user, and what heddle needs. kUnavailable.
[[nodiscard]] Error out_of_threads(const std::string& what, std::string_view why);

/// `start()`, which gives a Result and starts threads by libraries that throw where the system has
/// none left. Then it is an error as Thread::start has it.
template <class Start>
[[nodiscard]] std::invoke_result_t<Start> with_threads(const std::string& what, Start&& start) {
  try {
    return std::forward<Start>(start)();
  } catch (const std::runtime_error& failure) {  // std::system_error, and Boost's.
    return out_of_threads(what, failure.what());
  }
}

}  // namespace heddle
