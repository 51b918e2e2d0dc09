#include "remote/carried_stream.h"

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "remote/stream_messages.h"

namespace heddle::remote {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol::socket;

/// A stream, the socket that a test has at its end, and what it said to the other end.
class End {
 public:
  explicit End(asio::io_context& loop) : socket(loop) {
    Local inner(loop);
    asio::local::connect_pair(socket, inner);
    socket.non_blocking(true);
    stream = std::make_unique<CarriedStream>(
        CarriedStream::Handlers{.on_bytes =
                                    [this](std::string bytes) {
                                      said += bytes.size();
                                      out.push_back(std::move(bytes));
                                    },
                                .on_taken = [this](std::uint64_t bytes) { taken += bytes; },
                                .on_ended =
                                    [this](std::optional<Error> why) {
                                      ended = true;
                                      broken = why.has_value();
                                    },
                                .has_room = [this] { return room; }});
    stream->begin(CarriedStream::Socket(std::move(inner)));
  }

  /// What the socket has given.
  std::string read() {
    std::string all;
    std::array<char, 65536> some{};
    boost::system::error_code failure;
    while (!failure) {
      all.append(some.data(), socket.read_some(asio::buffer(some), failure));
    }
    closed = failure == asio::error::eof;
    return all;
  }
  /// How many of these bytes the socket has taken.
  std::size_t write(const std::string& bytes) {
    boost::system::error_code failure;
    std::size_t sent = 0;
    while (!failure && sent < bytes.size()) {
      sent += socket.write_some(asio::buffer(bytes.data() + sent, bytes.size() - sent), failure);
    }
    return sent;
  }

  Local socket;
  std::unique_ptr<CarriedStream> stream{};
  std::deque<std::string> out{};
  std::size_t said = 0;
  std::uint64_t taken = 0;
  bool room = true;
  bool ended = false;
  bool broken = false;
  bool closed = false;
};

/// Two ends, and a link between them that a test moves on.
class CarriedStreamTest : public ::testing::Test {
 protected:
  void turn() {
    loop_.restart();
    loop_.poll();
  }
  /// Carries what was said, until nothing more is.
  void carry() {
    for (int quiet = 0; quiet < 3; ++quiet) {
      turn();
      quiet = pass(here_, there_) || pass(there_, here_) ? -1 : quiet;
    }
  }
  static bool pass(End& from, End& to) {
    const bool some = !from.out.empty() || from.taken > 0;
    while (!from.out.empty()) {
      EXPECT_TRUE(to.stream->put(std::move(from.out.front())));
      from.out.pop_front();
    }
    if (const std::uint64_t taken = std::exchange(from.taken, 0); taken > 0) {
      EXPECT_TRUE(to.stream->taken(taken));
    }
    return some;
  }
  static std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    Rng rng(count);
    for (char& byte : bytes) {
      byte = static_cast<char>(rng.below(256));
    }
    return bytes;
  }

  asio::io_context loop_{};
  End here_{loop_};
  End there_{loop_};
};

TEST_F(CarriedStreamTest, WhatOneSocketGivesComesOutOfTheOther) {
  for (auto [from, to] : {std::pair(&here_, &there_), std::pair(&there_, &here_)}) {
    const std::string bytes = random_bytes(3'000'000);
    std::string sent = bytes;
    std::string got;
    while (got.size() < bytes.size()) {
      sent.erase(0, from->write(sent));
      carry();
      got += to->read();
    }
    EXPECT_TRUE(got == bytes);
  }
}

TEST_F(CarriedStreamTest, NoMoreIsOnItsWayThanTheWindow) {
  const std::string bytes = random_bytes(4 * kStreamWindow);
  std::size_t sent = 0;
  for (int i = 0; i < 50; ++i) {
    sent += here_.write(bytes.substr(sent));
    carry();  // Nobody reads at the other end.
  }
  const std::size_t stuck = here_.said;
  EXPECT_LT(sent, bytes.size());
  EXPECT_LE(stuck, kStreamWindow + sent - stuck) << "the rest is in the kernel's buffers";
  std::string got;
  while (got.size() < bytes.size()) {
    sent += here_.write(bytes.substr(sent));
    carry();
    got += there_.read();
  }
  EXPECT_TRUE(got == bytes);
}

TEST_F(CarriedStreamTest, ALinkWithoutRoomIsGivenNothing) {
  here_.room = false;
  here_.stream->resume();
  here_.write("hello");
  carry();
  EXPECT_EQ(here_.said, 0U);
  here_.room = true;
  here_.stream->resume();
  carry();
  EXPECT_EQ(there_.read(), "hello");
}

TEST_F(CarriedStreamTest, MoreThanMayComeIsRefused) {
  Result<void> put;
  for (std::size_t sent = 0; sent <= kStreamWindow && put; sent += kStreamPieceMost) {
    put = there_.stream->put(std::string(kStreamPieceMost, 'x'));
  }
  EXPECT_EQ(put.error().code, Code::kCorrupt);
  EXPECT_EQ(here_.stream->taken(1).error().code, Code::kCorrupt) << "it has sent nothing";
}

TEST_F(CarriedStreamTest, ItClosesWhenTheSocketHasTakenAllThatCame) {
  const std::string bytes = random_bytes(kStreamWindow);
  for (std::size_t at = 0; at < bytes.size(); at += kStreamPieceMost) {
    ASSERT_TRUE(there_.stream->put(bytes.substr(at, kStreamPieceMost)));
  }
  bool closed = false;
  there_.stream->finish([&] { closed = true; });
  std::string got;
  while (!closed) {
    turn();
    got += there_.read();
  }
  got += there_.read();
  EXPECT_TRUE(got == bytes);
  EXPECT_TRUE(there_.closed);
  EXPECT_FALSE(there_.ended);
}

TEST_F(CarriedStreamTest, ASocketThatHangsUpEndsItAfterItsLastBytes) {
  here_.write("bye");
  here_.socket.close();
  carry();
  EXPECT_TRUE(here_.ended);
  EXPECT_EQ(there_.read(), "bye");
}

TEST_F(CarriedStreamTest, WhatComesForASocketThatIsGoneIsDroppedAndTaken) {
  there_.socket.close();
  carry();
  EXPECT_TRUE(there_.ended);
  for (std::size_t sent = 0; sent < kStreamWindow; sent += kStreamPieceMost) {
    EXPECT_TRUE(there_.stream->put(std::string(kStreamPieceMost, 'x')));
  }
  there_.stream.reset();
  turn();
}

TEST_F(CarriedStreamTest, OneThatIsDestroyedSaysNothingMore) {
  here_.write("hello");
  here_.stream.reset();
  turn();
  EXPECT_EQ(here_.said, 0U);
}

}  // namespace
}  // namespace heddle::remote
