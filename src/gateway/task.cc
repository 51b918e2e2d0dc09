#include "gateway/task.h"

#include <cstdlib>
#include <exception>

#include <boost/asio/post.hpp>

#include "base/log.h"

namespace heddle::gateway {

namespace {

/// The coroutine around a task that runs by itself. Gone when it has ended.
struct Root {
  struct promise_type : TaskLinks {
    Root get_return_object() {
      const auto frame = std::coroutine_handle<promise_type>::from_promise(*this);
      root = frame;
      return {.start = Continuation(frame)};
    }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static std::suspend_never final_suspend() noexcept { return {}; }
    static void unhandled_exception() noexcept { abort_on_exception(); }
    void return_void() noexcept {}
  };

  Continuation start;
};

Root run(Task<void> task) {
  co_await task;
}

}  // namespace

void abort_on_exception() noexcept {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    log::error("exception in a coroutine", {{"what", error.what()}});
  } catch (...) {
    log::error("exception in a coroutine");
  }
  log::flush();
  std::abort();
}

void spawn(boost::asio::io_context& loop, Task<void> task) {
  boost::asio::post(loop, [start = run(std::move(task)).start]() mutable { start.resume(); });
}

}  // namespace heddle::gateway
