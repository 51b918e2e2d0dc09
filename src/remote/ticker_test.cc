#include "remote/ticker.h"

#include <optional>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "net/test_cluster.h"

namespace heddle::remote {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Ticker, ComesAgainAndAgain) {
  boost::asio::io_context loop{1};
  int calls = 0;
  const Ticker ticker(
      loop.get_executor(), [&] { ++calls; }, {.most = milliseconds(1), .least = milliseconds(1)});
  EXPECT_EQ(calls, 0) << "not from within";
  net::run_until(loop, [&] { return calls == 3; });
}

TEST(Ticker, ComesSoonAfterAChange) {
  boost::asio::io_context loop{1};
  int calls = 0;
  Ticker ticker(
      loop.get_executor(), [&] { ++calls; }, {.most = hours(1), .least = milliseconds(1)});
  ticker.soon();
  ticker.soon();
  net::run_until(loop, [&] { return calls == 1; });
  ticker.soon();
  net::run_until(loop, [&] { return calls == 2; });
  loop.restart();
  EXPECT_EQ(loop.poll(), 0U) << "nothing has changed since";
}

TEST(Ticker, MayBeDestroyedByWhatItCalls) {
  boost::asio::io_context loop{1};
  std::optional<Ticker> ticker;
  int calls = 0;
  ticker.emplace(
      loop.get_executor(),
      [&] {
        ++calls;
        ticker.reset();
      },
      TickerOptions{.most = milliseconds(1), .least = milliseconds(1)});
  loop.run();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace heddle::remote
