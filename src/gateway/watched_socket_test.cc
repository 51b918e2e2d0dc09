#include "gateway/watched_socket.h"

#include <algorithm>
#include <memory>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class WatchedSocketTest : public testing::Test {
 protected:
  WatchedSocketTest() {
    tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), 0});
    peer.connect(acceptor.local_endpoint());
    watched =
        std::make_shared<WatchedSocket>(loop, acceptor.accept(), [this] { seen += "unexpected "; });
  }
  ~WatchedSocketTest() override { watched->close(); }

  void send(const std::string& text) { peer.send(asio::buffer(text)); }
  /// Lets the loop do what it can until `seen` has grown by `words` words.
  void run_for(int words) {
    for (const std::size_t wanted = told() + static_cast<std::size_t>(words); told() < wanted;) {
      loop.restart();
      ASSERT_GT(loop.run_one(), 0U) << seen;
    }
  }
  [[nodiscard]] std::size_t told() const {
    return static_cast<std::size_t>(std::count(seen.begin(), seen.end(), ' '));
  }

  Task<void> read() {
    const bool stirred = co_await watched->readable();
    char bytes[100];
    boost::system::error_code failure;
    const std::size_t count = watched->read_some(asio::buffer(bytes), failure);
    seen += stirred ? "stirred:" : "woken:";
    seen += failure ? "nothing " : std::string(bytes, count) + " ";
  }

  Task<void> write(std::string text) {
    boost::beast::buffers_suffix left(asio::const_buffer(text.data(), text.size()));
    boost::system::error_code failure;
    while (!failure && asio::buffer_size(left) > 0) {
      failure = watched->send_some(left);
      if (!failure && asio::buffer_size(left) > 0) {
        co_await watched->writable();
      }
    }
    seen += failure ? "failed " : "written ";
  }

  std::string seen{};
  asio::io_context loop{1};
  tcp::socket peer{loop};
  std::shared_ptr<WatchedSocket> watched{};
};

TEST_F(WatchedSocketTest, LetsAReaderWait) {
  spawn(loop, read());
  loop.poll();
  EXPECT_EQ(seen, "");
  send("one");
  run_for(1);
  EXPECT_EQ(seen, "stirred:one ");
  peer.close();
  spawn(loop, read());
  run_for(1);
  EXPECT_EQ(seen, "stirred:one stirred:nothing ");
}

TEST_F(WatchedSocketTest, TellsOnceOfWhatNobodyWaitsFor) {
  watched->watch();
  send("one");
  run_for(1);
  send("two");
  loop.poll();
  EXPECT_EQ(seen, "unexpected ");
  spawn(loop, read());
  run_for(1);
  EXPECT_EQ(seen, "unexpected stirred:onetwo ");
}

TEST_F(WatchedSocketTest, AReaderThatIsWokenLeavesTheWaitToTheNext) {
  spawn(loop, read());
  loop.poll();
  watched->wake();
  EXPECT_EQ(seen, "woken:nothing ");
  spawn(loop, read());
  loop.poll();
  send("one");
  run_for(1);
  EXPECT_EQ(seen, "woken:nothing stirred:one ");
}

TEST_F(WatchedSocketTest, AReaderGoesOnWhenItIsClosed) {
  spawn(loop, read());
  loop.poll();
  watched->close();
  run_for(1);
  EXPECT_EQ(seen, "stirred:nothing ");
}

TEST_F(WatchedSocketTest, WhatIsMoreThanAReaderTakesAtOnceIsThereForTheNext) {
  send(std::string(250, 'x'));
  for (const std::size_t count : {100U, 100U, 50U}) {
    seen.clear();
    spawn(loop, read());
    run_for(1);
    EXPECT_EQ(seen, "stirred:" + std::string(count, 'x') + " ");
  }
  seen.clear();
  spawn(loop, read());
  loop.poll();
  EXPECT_EQ(seen, "");
  send("y");
  run_for(1);
  EXPECT_EQ(seen, "stirred:y ");
}

TEST_F(WatchedSocketTest, AHangUpThatComesWithTextIsHeardOfAfterIt) {
  spawn(loop, read());
  loop.poll();
  send("last");
  peer.close();
  run_for(1);
  EXPECT_EQ(seen, "stirred:last ");
  watched->watch();
  run_for(1);
  EXPECT_EQ(seen, "stirred:last unexpected ");
  spawn(loop, read());
  run_for(1);
  EXPECT_EQ(seen, "stirred:last unexpected stirred:nothing ");
}

TEST_F(WatchedSocketTest, AWriterGoesOnWhenThereIsRoomAgain) {
  const std::string text(32U << 20U, 'x');
  spawn(loop, write(text));
  loop.poll();
  EXPECT_EQ(seen, "");
  std::size_t come = 0;
  std::string bytes(1U << 20U, '\0');
  while (come < text.size()) {
    loop.restart();
    loop.poll();
    come += peer.read_some(asio::buffer(bytes));
  }
  run_for(told() == 0 ? 1 : 0);
  EXPECT_EQ(seen, "written ");
}

TEST_F(WatchedSocketTest, AWriterGoesOnWhenItIsClosed) {
  spawn(loop, write(std::string(32U << 20U, 'x')));
  loop.poll();
  watched->close();
  run_for(1);
  EXPECT_EQ(seen, "failed ");
}

TEST_F(WatchedSocketTest, TheLoopEndsWhereNobodyWaits) {
  spawn(loop, read());
  send("one");
  loop.run();
  EXPECT_EQ(seen, "stirred:one ");
  watched->watch();
  watched->close();
  loop.restart();
  loop.run();
  EXPECT_EQ(seen, "stirred:one unexpected ");
}

TEST(WatchedSocket, RemembersWhatCameForWhoeverAsksNext) {
  asio::io_context loop(1);
  tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), 0});
  tcp::socket peer(loop);
  peer.connect(acceptor.local_endpoint());
  const auto watched = std::make_shared<WatchedSocket>(loop, acceptor.accept());
  watched->watch();
  EXPECT_FALSE(watched->stirred());
  peer.close();
  loop.run();
  EXPECT_TRUE(watched->stirred());
}

/// Tells of its end.
struct Witness {
  explicit Witness(bool& what) : gone(what) {}
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  ~Witness() { gone = true; }
  bool& gone;
};

Task<void> wait_for_ever(std::shared_ptr<WatchedSocket> watched, bool& gone) {
  const Witness witness(gone);
  co_await watched->readable();
}

TEST(WatchedSocket, AReaderEndsWithTheLoop) {
  bool gone = false;
  {
    asio::io_context loop(1);
    tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), 0});
    tcp::socket peer(loop);
    peer.connect(acceptor.local_endpoint());
    spawn(loop, wait_for_ever(std::make_shared<WatchedSocket>(loop, acceptor.accept()), gone));
    loop.poll();
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace heddle::gateway
