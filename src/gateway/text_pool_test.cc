#include "gateway/text_pool.h"

#include <thread>
#include <vector>

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

Task<void> use_text(TextPool& pool, std::size_t bytes, Seen& seen) {
  std::function<void()> work = [&seen] { seen.worked = std::this_thread::get_id(); };
  co_await pool.run_text(bytes, std::move(work));
  seen.returned = std::this_thread::get_id();
}

TEST(TextPool, DoesShortTextsAtOnce) {
  asio::io_context loop;
  TextPool pool(loop, 2);
  Seen little;
  Seen much;
  spawn(loop, use_text(pool, 100, little));
  spawn(loop, use_text(pool, 100'000, much));
  loop.run();
  EXPECT_EQ(little.worked, std::this_thread::get_id());
  EXPECT_NE(much.worked, std::this_thread::get_id());
  EXPECT_EQ(much.returned, std::this_thread::get_id());
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
