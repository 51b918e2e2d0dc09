#include "manager/loop_lag.h"

#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log_tail.h"

namespace heddle::manager {
namespace {

using testing::HasSubstr;

TEST(LoopLag, SaysThatTheLoopStoodStill) {
  Metrics metrics;
  boost::asio::io_context loop(1);
  {
    const LoopLag lag(loop.get_executor(), metrics);
    boost::asio::post(loop,
                      [] { std::this_thread::sleep_for(LoopLag::kPeriod + LoopLag::kStood * 2); });
    (void)loop.run_one();  // It begins.
    (void)loop.run_one();  // What holds it up.
    (void)loop.run_one();  // The timer.
  }
  loop.run();
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle_loop_lag_seconds_count 1"));
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle_loop_lag_seconds_bucket{le=\"1\"} 0"));
  EXPECT_THAT(log::tail().back().text, HasSubstr("stood still"));
}

TEST(LoopLag, CountsFromWhenTheLoopRuns) {
  Metrics metrics;
  boost::asio::io_context loop(1);
  const LoopLag lag(loop.get_executor(), metrics);
  EXPECT_EQ(loop.poll(), 1U) << "before the loop runs no timer does";
}

TEST(LoopLag, IsNotLookedAtOnceItHasGoneThoughItsTimeHadCome) {
  Metrics metrics;
  boost::asio::io_context loop(1);
  auto lag = std::make_unique<LoopLag>(loop.get_executor(), metrics);
  boost::asio::post(loop, [] { std::this_thread::sleep_for(LoopLag::kPeriod * 2); });
  boost::asio::post(loop, [&lag] { lag.reset(); });
  (void)loop.run_one();  // It begins.
  (void)loop.run_one();
  (void)loop.poll_one();  // Whichever of both is first.
  loop.run();
  EXPECT_EQ(lag, nullptr);
}

}  // namespace
}  // namespace heddle::manager
