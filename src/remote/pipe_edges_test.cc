#include "remote/pipe_edges.h"

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "remote/edge_messages.h"
#include "remote/test_host.h"
#include "rpc/link.h"

namespace heddle::remote {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol::socket;

constexpr core::GroupId kGroup{.term = 2, .number = 1};
constexpr Duration kLong = std::chrono::minutes(5);

/// An agent: its edges, what it heard of them, and its workers' sockets.
class Host {
 public:
  Host(asio::io_context& loop, net::TestCluster& cluster, std::string name, Duration patience)
      : loop_(loop), name_(std::move(name)) {
    const net::Self self = net::self_of(cluster.issue(net::Role::kAgent, name_));
    edges.emplace(
        loop.get_executor(),
        self,
        [this](const agent::EdgeNews& news) { heard.push_back(news); },
        PipeEdgesOptions{.patience = patience,
                         .connector = {.backoff = {.first = std::chrono::milliseconds(1),
                                                   .most = std::chrono::milliseconds(4),
                                                   .seed = 1}}});
    listener_ =
        test_listener(loop, self, {net::Role::kAgent}, [this](auto link, const net::Peer& peer) {
          ++links;
          if (edges) {
            edges->take(std::move(link), peer);
          }
        });
  }

  [[nodiscard]] core::GroupHost address() const {
    return {.name = name_, .address = "127.0.0.1", .port = listener_->port()};
  }
  /// An edge of this host, with the socket that its worker has.
  agent::Edge edge(std::int64_t stage, const core::GroupHost& peer, bool begins) {
    auto sockets = rpc::socket_pair();
    HEDDLE_CHECK(sockets.has_value());
    Local& worker = workers.emplace_back(loop_);
    worker.assign(asio::local::stream_protocol(), sockets->first.release());
    worker.non_blocking(true);
    return {.stage = stage, .peer = peer, .begins = begins, .socket = std::move(sockets->second)};
  }
  void connect(agent::Edge edge, core::GroupId group = kGroup) {
    std::vector<agent::Edge> all;
    all.push_back(std::move(edge));
    edges->connect(group, std::move(all));
  }
  template <class T>
  [[nodiscard]] const T* last() const {
    return heard.empty() ? nullptr : std::get_if<T>(&heard.back());
  }
  /// Dies.
  void die() {
    edges.reset();
    listener_.reset();
  }

  std::optional<PipeEdges> edges{};
  std::deque<Local> workers{};
  std::vector<agent::EdgeNews> heard{};
  int links = 0;

 private:
  asio::io_context& loop_;
  std::string name_;
  std::unique_ptr<net::Listener> listener_{};
};

/// A pipeline of two stages on two hosts.
class PipeEdgesTest : public ::testing::Test {
 protected:
  void make(Duration patience = kLong) {
    for (const char* name : {"h1", "h2"}) {
      hosts.push_back(std::make_unique<Host>(loop, cluster, name, patience));
    }
  }
  Host& host(std::size_t i) { return *hosts[i]; }
  /// This host's end of both edges: of stage 0 to 1, and back.
  std::vector<agent::Edge> ends(std::size_t i) {
    const core::GroupHost peer = host(1 - i).address();
    std::vector<agent::Edge> all;
    all.push_back(host(i).edge(0, peer, i == 0));
    all.push_back(host(i).edge(1, peer, i == 1));
    return all;
  }
  void connect() {
    for (const std::size_t i : {0U, 1U}) {
      host(i).edges->connect(kGroup, ends(i));
    }
    run([&] {
      return host(0).last<core::GroupLinked>() != nullptr &&
             host(1).last<core::GroupLinked>() != nullptr;
    });
  }
  void run(const std::function<bool()>& done) { net::run_until(loop, done); }

  /// What the socket gives, until there is so much or it is closed.
  std::string read(Local& socket, std::size_t count) {
    std::string all;
    run([&] {
      std::array<char, 65536> some{};
      boost::system::error_code failure;
      while (!failure && all.size() < count) {
        all.append(some.data(), socket.read_some(asio::buffer(some), failure));
      }
      closed = failure == asio::error::eof;
      wake();
      return all.size() >= count || closed;
    });
    return all;
  }
  /// Reads of the test are no events of the loop.
  void wake() {
    timer.expires_after(std::chrono::milliseconds(1));
    timer.async_wait([](const auto& /*stopped*/) {});
  }
  /// How much the socket takes, until it has not taken any for a while.
  std::size_t fill(Local& socket) {
    const std::string bytes(65536, 'x');
    std::size_t sent = 0;
    int quiet = 0;
    run([&] {
      boost::system::error_code failure;
      const std::size_t count = socket.write_some(asio::buffer(bytes), failure);
      sent += count;
      quiet = count > 0 ? 0 : quiet + 1;
      wake();
      return quiet > 100;
    });
    return sent;
  }
  void expect_closed(Local& socket) {
    (void)read(socket, SIZE_MAX);
    EXPECT_TRUE(closed);
  }

  net::TestCluster cluster{};
  asio::io_context loop{};
  asio::steady_timer timer{loop};
  std::vector<std::unique_ptr<Host>> hosts{};
  bool closed = false;
};

TEST_F(PipeEdgesTest, WhatAStageSendsComesToTheNext) {
  make();
  connect();
  std::string bytes(3'000'000, '\0');
  Rng rng(7);
  for (char& byte : bytes) {
    byte = static_cast<char>(rng.below(256));
  }
  for (const std::size_t stage : {0U, 1U}) {
    std::size_t sent = 0;
    std::string got;
    Local& from = host(stage).workers[stage];
    Local& to = host(1 - stage).workers[stage];
    run([&] {
      boost::system::error_code failure;
      sent += from.write_some(asio::buffer(bytes.data() + sent, bytes.size() - sent), failure);
      std::array<char, 65536> some{};
      boost::system::error_code empty;
      got.append(some.data(), to.read_some(asio::buffer(some), empty));
      wake();
      return got.size() == bytes.size();
    });
    EXPECT_EQ(got, bytes) << "stage " << stage;
  }
}

TEST_F(PipeEdgesTest, ALinkThatComesBeforeItsEdgeIsKnownWaits) {
  make();
  host(0).connect(host(0).edge(0, host(1).address(), true));
  run([&] { return host(1).links == 1; });
  for (int i = 0; i < 20; ++i) {
    wake();
    loop.restart();
    loop.run_one();
  }
  EXPECT_TRUE(host(0).heard.empty());
  host(1).connect(host(1).edge(0, host(0).address(), false));
  run([&] { return host(0).last<core::GroupLinked>() && host(1).last<core::GroupLinked>(); });
  asio::write(host(0).workers[0], asio::buffer(std::string("hello")));
  EXPECT_EQ(read(host(1).workers[0], 5), "hello");
}

TEST_F(PipeEdgesTest, AnEdgeThatNobodyAskedForIsRefusedInTheEnd) {
  make(std::chrono::milliseconds(50));
  host(0).connect(host(0).edge(0, host(1).address(), true));
  run([&] { return !host(0).heard.empty(); });
  ASSERT_NE(host(0).last<core::GroupCut>(), nullptr);
  const core::GroupCut cut = *host(0).last<core::GroupCut>();
  EXPECT_EQ(cut.group, kGroup);
  EXPECT_NE(cut.reason.message.find("connect a pipeline with stage 1 on h2 at 127.0.0.1:"),
            std::string::npos)
      << cut.reason.message;
  expect_closed(host(0).workers[0]);
}

TEST_F(PipeEdgesTest, AnotherGroupsLinkIsNotTaken) {
  make(std::chrono::milliseconds(50));
  host(0).connect(host(0).edge(0, host(1).address(), true));
  host(1).connect(host(1).edge(0, host(0).address(), false), {.term = 1, .number = 1});
  run([&] { return host(0).last<core::GroupCut>() && host(1).last<core::GroupCut>(); });
  EXPECT_EQ(host(0).heard.size(), 1U) << "it never was up";
  EXPECT_EQ(host(1).heard.size(), 1U);
}

TEST_F(PipeEdgesTest, AHostWhoseEdgeIsAnothersIsRefused) {
  make(std::chrono::milliseconds(50));
  core::GroupHost other = host(0).address();
  other.name = "h9";
  host(1).connect(host(1).edge(0, other, false));
  host(0).connect(host(0).edge(0, host(1).address(), true));
  run([&] { return host(0).last<core::GroupCut>() && host(1).last<core::GroupCut>(); });
  EXPECT_EQ(host(1).heard.size(), 1U);
}

TEST_F(PipeEdgesTest, AWorkerThatEndsEndsTheGroupsEdgesEverywhereAndIsNewsElsewhere) {
  make();
  connect();
  host(1).workers[0].close();
  run([&] { return host(0).last<core::GroupCut>() != nullptr; });
  EXPECT_NE(host(0).last<core::GroupCut>()->reason.message.find("on h2: "), std::string::npos);
  EXPECT_EQ(host(1).last<core::GroupCut>(), nullptr) << "its host hears of the worker itself";
  expect_closed(host(0).workers[0]);
  expect_closed(host(0).workers[1]);
  expect_closed(host(1).workers[1]);
}

TEST_F(PipeEdgesTest, AHostThatDiesIsNews) {
  make();
  connect();
  host(0).die();
  run([&] { return host(1).last<core::GroupCut>() != nullptr; });
  expect_closed(host(1).workers[0]);
  EXPECT_EQ(host(1).heard.size(), 2U) << "linked and cut, once each";
}

TEST_F(PipeEdgesTest, WhoeverLeavesHearsNothingMoreAndTheOtherDoes) {
  make();
  connect();
  host(0).edges->leave(kGroup);
  run([&] { return host(1).last<core::GroupCut>() != nullptr; });
  EXPECT_EQ(host(0).last<core::GroupCut>(), nullptr);
  expect_closed(host(0).workers[0]);
}

TEST_F(PipeEdgesTest, AStageThatTakesNothingHasTheOneBeforeItStop) {
  make();
  connect();
  const std::size_t sent = fill(host(0).workers[0]);
  EXPECT_GT(sent, kStreamWindow);
  EXPECT_LT(sent, 4 * kStreamWindow + (std::size_t{2} << 20U)) << "what sockets hold beside";
  EXPECT_EQ(read(host(1).workers[0], sent).size(), sent) << "and goes on when it takes some";
}

}  // namespace
}  // namespace heddle::remote
