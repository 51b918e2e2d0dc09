#include "gateway/task.h"

#include <chrono>
#include <memory>
#include <string>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

Task<int> answer_later(asio::io_context& loop) {
  asio::steady_timer timer(loop, 1ms);
  const auto [stopped] = co_await timer.async_wait(kAwait);
  co_return stopped ? 0 : 42;
}

/// Without a coroutine where it has nothing to wait for.
Task<int> answer(asio::io_context& loop, bool known) {
  return known ? Task<int>(7) : answer_later(loop);
}

Task<void> ask(asio::io_context& loop, std::string& seen) {
  const int known = co_await answer(loop, true);
  seen += std::to_string(known) + " ";
  const int later = co_await answer(loop, false);
  seen += std::to_string(later);
  co_await nothing_to_wait_for();
  seen += " end";
}

TEST(Task, WaitsForOthersAndForOperations) {
  asio::io_context loop(1);
  std::string seen;
  spawn(loop, ask(loop, seen));
  EXPECT_EQ(seen, "") << "runs from the loop, not from within spawn()";
  loop.run();
  EXPECT_EQ(seen, "7 42 end");
}

Task<int> count_down(int from) {
  if (from == 0) {
    co_return 0;
  }
  const int below = co_await count_down(from - 1);
  co_return below + 1;
}

Task<void> keep(Task<int> task, int& result) {
  result = co_await task;
}

TEST(Task, GivesBackWhatOthersGaveIt) {
  asio::io_context loop(1);
  int result = 0;
  spawn(loop, keep(count_down(100), result));
  loop.run();
  EXPECT_EQ(result, 100);
}

/// Tells of its end.
struct Witness {
  explicit Witness(std::string& where) : seen(where) {}
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  ~Witness() { seen += "gone "; }
  std::string& seen;
};

Task<void> wait_for_ever(asio::io_context& loop, std::string& seen) {
  const Witness witness(seen);
  asio::steady_timer timer(loop, asio::steady_timer::time_point::max());
  co_await timer.async_wait(kAwait);
  seen += "woken ";
}

Task<void> wait_for_that(asio::io_context& loop, std::string& seen) {
  const Witness witness(seen);
  co_await wait_for_ever(loop, seen);
  seen += "woken ";
}

TEST(Task, EndsWithTheLoopWhatItAwaitsFirst) {
  std::string seen;
  {
    asio::io_context loop(1);
    spawn(loop, wait_for_that(loop, seen));
    loop.poll();
    EXPECT_EQ(seen, "");
  }
  EXPECT_EQ(seen, "gone gone ");
}

TEST(Task, EndsWithALoopThatNeverRan) {
  std::string seen;
  {
    asio::io_context loop(1);
    spawn(loop, wait_for_that(loop, seen));
  }
  EXPECT_EQ(seen, "") << "its body had not begun";
}

TEST(Task, IsDroppedUnawaited) {
  asio::io_context loop(1);
  std::string seen;
  {
    const Task<void> never = wait_for_that(loop, seen);
  }
  EXPECT_EQ(seen, "");
}

Task<std::unique_ptr<int>> give() {
  co_return std::make_unique<int>(3);
}

Task<void> take(int& result) {
  const std::unique_ptr<int> given = co_await give();
  result = *given;
}

TEST(Task, PassesOnWhatCanOnlyBeMoved) {
  asio::io_context loop(1);
  int result = 0;
  spawn(loop, take(result));
  loop.run();
  EXPECT_EQ(result, 3);
}

Task<char> fail() {
  co_return std::string().at(1);
}

Task<void> fail_in_turn() {
  co_await fail();
}

TEST(TaskDeathTest, AbortsOnAnException) {
  asio::io_context loop(1);
  spawn(loop, fail_in_turn());
  EXPECT_DEATH(loop.run(), "exception in a coroutine");
}

}  // namespace
}  // namespace heddle::gateway
