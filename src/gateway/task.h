#pragma once

#include <coroutine>
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include <boost/asio/async_result.hpp>
#include <boost/asio/io_context.hpp>

/// Coroutines of the loop thread. A request goes through a dozen: Asio's own take a frame more for
/// each operation, and carry an executor and an exception through each call.
namespace heddle::gateway {

/// What the frames of a chain of coroutines know of each other.
struct TaskLinks {
  std::coroutine_handle<> root{};    ///< The outermost; ending it ends all.
  std::coroutine_handle<> waiter{};  ///< Goes on when this one has ended.
};

/// An exception of a library has left a coroutine, which is a bug, as nothing of ours lets one out:
/// logs it and aborts.
[[noreturn]] void abort_on_exception() noexcept;

/// Whose turn it is when something has come: a coroutine that is suspended. Dropped without
/// resume(), as by a loop that ends, it ends the whole chain of coroutines. Empty where moved from.
class Continuation {
 public:
  Continuation() = default;
  template <class Promise>
  explicit Continuation(std::coroutine_handle<Promise> waiter)
      : waiter_(waiter), root_(waiter.promise().root) {}
  Continuation(Continuation&& other) noexcept
      : waiter_(std::exchange(other.waiter_, {})), root_(other.root_) {}
  Continuation& operator=(Continuation&& other) noexcept {
    Continuation taken(std::move(other));
    std::swap(waiter_, taken.waiter_);
    std::swap(root_, taken.root_);
    return *this;
  }
  ~Continuation() {
    if (waiter_) {
      root_.destroy();
    }
  }

  void resume() { std::exchange(waiter_, {}).resume(); }
  explicit operator bool() const { return static_cast<bool>(waiter_); }

 private:
  std::coroutine_handle<> waiter_{};
  std::coroutine_handle<> root_{};
};

/// A coroutine that runs when it is awaited, once; or a value that was there at once, for which
/// none was needed.
template <class T = void>
class [[nodiscard]] Task {
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  struct Ended {
    static bool await_ready() noexcept { return false; }
    template <class Promise>
    static std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> frame) noexcept {
      return frame.promise().waiter;
    }
    static void await_resume() noexcept {}
  };
  struct PromiseOfAny : TaskLinks {
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static Ended final_suspend() noexcept { return {}; }
    static void unhandled_exception() noexcept { abort_on_exception(); }
  };
  struct PromiseOfVoid : PromiseOfAny {
    void return_void() noexcept {}
    std::optional<Value> value{std::in_place};
  };
  struct PromiseOfValue : PromiseOfAny {
    template <class U>
    void return_value(U&& given) {
      value.emplace(std::forward<U>(given));
    }
    std::optional<Value> value{};
  };

 public:
  struct promise_type : std::conditional_t<std::is_void_v<T>, PromiseOfVoid, PromiseOfValue> {
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
  };

  Task(Value value) : value_(std::move(value)) {}  // NOLINT: a value is as good as a task.
  Task(Task&& other) noexcept
      : frame_(std::exchange(other.frame_, {})), value_(std::move(other.value_)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (frame_) {
      frame_.destroy();
    }
  }

  [[nodiscard]] bool await_ready() const noexcept { return !frame_; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> waiter) noexcept {
    frame_.promise().root = waiter.promise().root;
    frame_.promise().waiter = waiter;
    return frame_;
  }
  T await_resume() {
    if constexpr (!std::is_void_v<T>) {
      return frame_ ? std::move(*frame_.promise().value) : std::move(*value_);
    }
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}

  std::coroutine_handle<promise_type> frame_{};
  std::optional<Value> value_{};
};

/// A task without a value that needed no coroutine.
[[nodiscard]] inline Task<void> nothing_to_wait_for() {
  return std::monostate();
}

/// Has `task` run from the loop, by itself. It ends with the loop if not before.
void spawn(boost::asio::io_context& loop, Task<void> task);

/// The completion token for Asio's operations: `co_await timer.async_wait(kAwait)` gives what a
/// handler would get, as a tuple.
struct AwaitToken {};
inline constexpr AwaitToken kAwait{};

/// An operation of Asio that begins when it is awaited.
template <class Outcome, class Initiation, class... Args>
class AwaitedOperation {
 public:
  explicit AwaitedOperation(Initiation initiation, Args... args)
      : initiation_(std::move(initiation)), args_(std::move(args)...) {}

  static bool await_ready() noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> waiter) {
    std::apply(
        [&](auto&... args) {
          std::move(initiation_)(Handler(Continuation(waiter), outcome_), std::move(args)...);
        },
        args_);
  }
  Outcome await_resume() { return std::move(*outcome_); }

 private:
  class Handler {
   public:
    Handler(Continuation continuation, std::optional<Outcome>& outcome)
        : continuation_(std::move(continuation)), outcome_(&outcome) {}
    template <class... Values>
    void operator()(Values&&... values) {
      outcome_->emplace(std::forward<Values>(values)...);
      continuation_.resume();
    }

   private:
    Continuation continuation_;
    std::optional<Outcome>* outcome_;
  };

  Initiation initiation_;
  std::tuple<Args...> args_;
  std::optional<Outcome> outcome_{};
};

}  // namespace heddle::gateway

template <class... Values>
class boost::asio::async_result<heddle::gateway::AwaitToken, void(Values...)> {
 public:
  template <class Initiation, class... Args>
  static auto initiate(Initiation&& initiation,
                       heddle::gateway::AwaitToken /*token*/,
                       Args&&... args) {
    return heddle::gateway::AwaitedOperation<std::tuple<std::decay_t<Values>...>,
                                             std::decay_t<Initiation>,
                                             std::decay_t<Args>...>(
        std::forward<Initiation>(initiation), std::forward<Args>(args)...);
  }
};
