#include "gateway/readiness.h"

#include <array>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "base/descriptor.h"

#include <sys/socket.h>

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    ours = Descriptor(ends[0]);
    theirs = Descriptor(ends[1]);
  }
  void send() const { EXPECT_EQ(::send(theirs.get(), "x", 1, 0), 1); }
  Descriptor ours{};
  Descriptor theirs{};
};

struct Ear final : Readiness::Listener {
  void on_news(const Readiness::News& news) override {
    heard += news.readable ? 1 : 0;
    hung_up = hung_up || news.hung_up;
    if (then) {
      then();
    }
  }
  void on_loop_end() override { ended = true; }
  std::function<void()> then{};
  int heard = 0;
  bool hung_up = false;
  bool ended = false;
};

TEST(Readiness, TellsOnceOfEachChange) {
  asio::io_context loop(1);
  auto& readiness = asio::use_service<Readiness>(loop);
  Pair pair;
  Ear ear;
  ASSERT_TRUE(readiness.add(pair.ours.get(), ear));
  readiness.expect();
  loop.poll();
  EXPECT_EQ(ear.heard, 0);
  pair.send();
  loop.poll();
  loop.poll();
  EXPECT_EQ(ear.heard, 1);
  pair.send();
  loop.poll();
  EXPECT_EQ(ear.heard, 2);
  EXPECT_FALSE(ear.hung_up);
  pair.theirs = Descriptor();
  loop.poll();
  EXPECT_TRUE(ear.hung_up);
  readiness.remove(pair.ours.get());
  readiness.unexpect();
  loop.run();  // Has nothing to do.
}

// Both have news in one turn, and hearing of the first, its listener closes the other and opens a
// new one of the same number.
TEST(Readiness, NewsOfAClosedSocketDoNotGoToTheNextWithItsNumber) {
  asio::io_context loop(1);
  auto& readiness = asio::use_service<Readiness>(loop);
  std::array<Pair, 2> pairs;
  std::array<Ear, 2> ears;
  Ear next_ear;
  Pair next;
  const auto replace = [&](std::size_t which) {
    if (next_ear.heard + ears[which].heard > 0 || ears[1 - which].heard > 1) {
      return;
    }
    const int number = pairs[which].ours.get();
    readiness.remove(number);
    pairs[which].ours = Descriptor();
    ASSERT_EQ(::dup2(next.ours.get(), number), number);
    pairs[which].ours = Descriptor(number);
    ASSERT_TRUE(readiness.add(number, next_ear));
  };
  ears[0].then = [&] { replace(1); };
  ears[1].then = [&] { replace(0); };
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(readiness.add(pairs[i].ours.get(), ears[i]));
  }
  pairs[0].send();
  pairs[1].send();
  readiness.expect();
  loop.poll();
  loop.poll();
  EXPECT_EQ(ears[0].heard + ears[1].heard, 1);
  EXPECT_EQ(next_ear.heard, 0);
  next.send();
  loop.poll();
  EXPECT_EQ(next_ear.heard, 1);
}

TEST(Readiness, ASocketThatCannotBeWatchedIsSaid) {
  asio::io_context loop(1);
  auto& readiness = asio::use_service<Readiness>(loop);
  Ear ear;
  Pair pair;
  EXPECT_TRUE(readiness.add(pair.ours.get(), ear));
  EXPECT_FALSE(readiness.add(pair.ours.get(), ear)) << "it is watched already";
}

TEST(Readiness, ListenersHearOfTheEndOfTheLoop) {
  Ear stays;
  Ear leaves;
  {
    asio::io_context loop(1);
    auto& readiness = asio::use_service<Readiness>(loop);
    readiness.enter(stays);
    readiness.enter(leaves);
    readiness.leave(leaves);
    readiness.expect();
    loop.poll();
  }
  EXPECT_TRUE(stays.ended);
  EXPECT_FALSE(leaves.ended);
}

}  // namespace
}  // namespace heddle::gateway
