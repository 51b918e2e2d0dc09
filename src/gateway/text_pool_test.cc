#include "gateway/text_pool.h"

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/task.h"

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;

struct Seen {
  std::thread::id worked{};
  std::thread::id returned{};
};

Task<void> use(TextPool& pool, Seen& seen) {
  std::function<void()> work = [&seen] { seen.worked = std::this_thread::get_id(); };
  co_await pool.run(std::move(work));
  seen.returned = std::this_thread::get_id();
}

/// A client's works note that they were done, and how they ended.
struct Log {
  std::mutex mutex{};
  std::vector<std::string> lines{};

  void add(std::string line) {
    const std::lock_guard lock(mutex);
    lines.push_back(std::move(line));
  }
};

Task<void> do_steps(
    TextPool& pool, TextOwner owner, std::size_t bytes, std::function<bool()> step, Log& log) {
  const std::string name = owner.client;
  const Result<void> done = co_await pool.run_steps(std::move(owner), bytes, std::move(step));
  log.add(name + (done ? " done" : " " + done.error().message.substr(0, 16)));
}

TEST(TextPool, ClientsTakeTurnsBetweenSteps) {
  asio::io_context loop;
  TextPool pool(loop, 1);
  Log log;
  std::promise<void> all_wait;
  std::shared_future<void> go(all_wait.get_future());
  const auto steps = [&log, go](std::string name, int count) -> std::function<bool()> {
    return [&log, go, name, left = count]() mutable {
      go.wait();
      log.add(name);
      return --left == 0;
    };
  };
  spawn(loop, do_steps(pool, {.client = "a"}, 1 << 20, steps("a1", 3), log));
  spawn(loop, do_steps(pool, {.client = "a"}, 1 << 20, steps("a2", 1), log));
  spawn(loop, do_steps(pool, {.client = "b"}, 1 << 20, steps("b1", 2), log));
  loop.poll();
  all_wait.set_value();
  loop.run();
  std::erase_if(log.lines, [](const std::string& line) { return line.ends_with("done"); });
  // The first step may have begun before the others came, and is then nobody's turn.
  EXPECT_THAT(log.lines,
              testing::AnyOf(testing::ElementsAre("a1", "b1", "a1", "b1", "a1", "a2"),
                             testing::ElementsAre("a1", "a1", "b1", "a1", "b1", "a2")));
}

TEST(TextPool, ShortWorksDoNotWaitForLongOnes) {
  asio::io_context loop;
  TextPool pool(loop, 2);
  Log log;
  std::promise<void> short_one_done;
  std::shared_future<void> go(short_one_done.get_future());
  for (int i = 0; i < 5; ++i) {
    const std::function<bool()> wait = [go] {
      go.wait();
      return true;
    };
    spawn(loop, do_steps(pool, {.client = "greedy"}, 1 << 20, wait, log));
  }
  const std::function<bool()> brief = [&short_one_done] {
    short_one_done.set_value();
    return true;
  };
  spawn(loop, do_steps(pool, {.client = "other"}, 700, brief, log));
  loop.run();
  EXPECT_EQ(log.lines.size(), 6U);
}

TEST(TextPool, EndsAWorkWhoseClientHasGone) {
  asio::io_context loop;
  TextPool pool(loop, 2);
  Log log;
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  const std::function<bool()> endless = [gone] {
    gone->store(true);
    return false;
  };
  spawn(loop, do_steps(pool, {.client = "a", .gone = gone}, 1 << 20, endless, log));
  loop.run();
  EXPECT_EQ(log.lines, std::vector<std::string>{"a the client hung "});
}

TEST(TextPool, TurnsAwayWhatAClientHasTooMuchOf) {
  constexpr std::size_t kMuch = std::size_t{30} << 20U;
  asio::io_context loop;
  TextPool pool(loop, 2);
  Log log;
  std::promise<void> all_asked;
  std::shared_future<void> go(all_asked.get_future());
  const std::function<bool()> wait = [go] {
    go.wait();
    return true;
  };
  for (int i = 0; i < 3; ++i) {
    spawn(loop, do_steps(pool, {.client = "a"}, kMuch, wait, log));
  }
  spawn(loop, do_steps(pool, {.client = "b"}, kMuch, wait, log));
  loop.poll();
  EXPECT_EQ(log.lines, std::vector<std::string>{"a this client has "});
  all_asked.set_value();
  loop.run();
  EXPECT_EQ(log.lines.size(), 4U);
  log.lines.clear();
  loop.restart();
  spawn(loop, do_steps(pool, {.client = "a"}, 4 * kMuch, wait, log));
  loop.run();
  EXPECT_EQ(log.lines, std::vector<std::string>{"a done"});  // Alone it is taken.
}

TEST(TextPool, WorksElsewhereAndComesBack) {
  asio::io_context loop;
  TextPool pool(loop, 2);
  std::vector<Seen> all(50);
  for (Seen& seen : all) {
    spawn(loop, use(pool, seen));
  }
  loop.run();
  for (const Seen& seen : all) {
    EXPECT_NE(seen.worked, std::thread::id());
    EXPECT_NE(seen.worked, std::this_thread::get_id());
    EXPECT_EQ(seen.returned, std::this_thread::get_id());
  }
}

}  // namespace
}  // namespace heddle::gateway
