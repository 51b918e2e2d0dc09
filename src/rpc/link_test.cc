#include "rpc/link.h"

#include <array>
#include <functional>
#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace heddle::rpc {
namespace {

/// Both ends of a link, on one loop that the test turns.
struct Ends {
  explicit Ends(LinkLimits limits = {}) {
    auto sockets = socket_pair();
    HEDDLE_CHECK(sockets.has_value());
    left_socket = sockets->first.get();
    left.emplace(loop.get_executor(), std::move(sockets->first), handlers(left_seen), limits);
    right_socket = std::move(sockets->second);
  }

  struct Seen {
    std::vector<Frame> frames{};
    std::vector<Error> closed{};
    int drained = 0;
  };

  Link::Handlers handlers(Seen& seen) {
    return {.on_frame = [&seen](Frame frame) { seen.frames.push_back(std::move(frame)); },
            .on_closed = [&seen](const Error& error) { seen.closed.push_back(error); },
            .on_drained = [&seen] { ++seen.drained; }};
  }

  void open_right() {
    right.emplace(loop.get_executor(), std::move(right_socket), handlers(right_seen));
  }

  /// Turns the loop until `done`, which must come true through the events under way.
  void run_until(const std::function<bool()>& done) {
    while (!done()) {
      loop.run_one();
    }
  }

  boost::asio::io_context loop{1};
  Seen left_seen{};
  Seen right_seen{};
  std::optional<Link> left{};
  std::optional<Link> right{};
  int left_socket = -1;
  Descriptor right_socket{};
};

TEST(Link, CarriesFramesBothWaysInOrder) {
  Ends ends;
  ends.open_right();
  const std::string large(3 << 20, 'L');
  ASSERT_TRUE(ends.left->send("one"));
  ASSERT_TRUE(ends.left->send(large));
  ASSERT_TRUE(ends.left->send(""));
  ASSERT_TRUE(ends.right->send("back"));
  ends.run_until(
      [&] { return ends.right_seen.frames.size() == 3 && ends.left_seen.frames.size() == 1; });
  EXPECT_EQ(ends.right_seen.frames[0].payload, "one");
  EXPECT_EQ(ends.right_seen.frames[1].payload, large);
  EXPECT_EQ(ends.right_seen.frames[2].payload, "");
  EXPECT_EQ(ends.left_seen.frames[0].payload, "back");
}

TEST(Link, CarriesDescriptorsBesideTheirFrame) {
  Ends ends;
  ends.open_right();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Descriptor reading(pipe[0]);
  std::vector<Descriptor> given;
  given.emplace_back(pipe[1]);
  ASSERT_TRUE(ends.left->send("plain"));
  ASSERT_TRUE(ends.left->send("with a pipe", std::move(given)));
  ASSERT_TRUE(ends.left->send("plain again"));
  ends.run_until([&] { return ends.right_seen.frames.size() == 3; });
  EXPECT_TRUE(ends.right_seen.frames[0].descriptors.empty());
  EXPECT_TRUE(ends.right_seen.frames[2].descriptors.empty());
  ASSERT_EQ(ends.right_seen.frames[1].descriptors.size(), 1U);
  const int writing = ends.right_seen.frames[1].descriptors[0].get();
  EXPECT_NE(::fcntl(writing, F_GETFD) & FD_CLOEXEC, 0) << "descriptors must not leak to children";
  ASSERT_EQ(::write(writing, "!", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(reading.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '!');
}

TEST(Link, ReportsThePeersEndOnceAfterWhatItSaid) {
  Ends ends;
  ends.open_right();
  ASSERT_TRUE(ends.right->send("last words"));
  ends.right.reset();
  ends.run_until([&] { return !ends.left_seen.closed.empty(); });
  ASSERT_EQ(ends.left_seen.frames.size(), 1U);
  EXPECT_EQ(ends.left_seen.closed[0].code, Code::kUnavailable);
  EXPECT_EQ(ends.left->send("to nobody").error().code, Code::kUnavailable);
  ends.loop.poll();
  EXPECT_EQ(ends.left_seen.closed.size(), 1U);
}

TEST(Link, ClosesOnAPeerThatDoesNotSpeakTheProtocol) {
  Ends ends;
  ASSERT_EQ(::write(ends.right_socket.get(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
  ends.run_until([&] { return !ends.left_seen.closed.empty(); });
  EXPECT_EQ(ends.left_seen.closed[0].code, Code::kCorrupt);
}

TEST(Link, BoundsWhatWaitsForASlowPeerAndSaysWhenItIsGone) {
  Ends ends({.queued_bytes_max = std::size_t{4} << 20U});
  const std::string chunk(256 << 10, 'c');
  std::size_t sent = 0;
  Result<void> last;
  while (last) {
    last = ends.left->send(chunk);
    sent += last ? 1 : 0;
    ASSERT_LT(sent, 1000U) << "nobody reads, so the queue must fill";
  }
  EXPECT_EQ(last.error().code, Code::kResourceExhausted);
  EXPECT_GT(ends.left->queued_bytes(), std::size_t{3} << 20U);
  ends.open_right();
  ends.run_until([&] { return ends.right_seen.frames.size() == sent; });
  ends.run_until([&] { return ends.left_seen.drained == 1; });
  EXPECT_EQ(ends.left->queued_bytes(), 0U);
  EXPECT_TRUE(ends.left->send("and on it goes"));
}

TEST(Link, MayBeDestroyedByItsOwnHandler) {
  boost::asio::io_context loop(1);
  auto sockets = socket_pair();
  ASSERT_TRUE(sockets);
  std::optional<Link> link;
  int frames = 0;
  link.emplace(loop.get_executor(),
               std::move(sockets->first),
               Link::Handlers{.on_frame = [&](Frame) { ++frames, link.reset(); },
                              .on_closed = [](const Error&) { FAIL(); }});
  Link peer(loop.get_executor(), std::move(sockets->second), {.on_closed = [](const Error&) {}});
  ASSERT_TRUE(peer.send("one"));
  ASSERT_TRUE(peer.send("two: never seen"));
  loop.run();
  EXPECT_EQ(frames, 1);
}

TEST(Link, RefusesToSendMoreThanAPeerWouldTake) {
  Ends ends({.payload_bytes_max = 100});
  EXPECT_TRUE(ends.left->send(std::string(100, 'x')));
  EXPECT_EQ(ends.left->send(std::string(101, 'x')).error().message,
            "send a message of 101 bytes: the limit is 100");
}

}  // namespace
}  // namespace heddle::rpc
