#include "net/connector.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "net/listener.h"
#include "net/test_cluster.h"

namespace heddle::net {
namespace {

using std::chrono::milliseconds;

class Connecting : public ::testing::Test {
 protected:
  void connect(std::uint16_t to, Wanted wanted = {.roles = {Role::kAgent}}) {
    connector = std::make_unique<Connector>(
        loop.get_executor(),
        Address{.host = "127.0.0.1", .port = to},
        self_of(cluster.issue(Role::kManager, "m" + std::to_string(++managers))),
        wanted,
        Connector::Handlers{
            .on_up = [this](const Peer& peer) { ups.push_back(peer); },
            .on_down = [this](const Error& error) { downs.push_back(error); },
            .on_frame = [this](rpc::Frame frame) { heard.push_back(frame.payload); }},
        ConnectorOptions{
            .backoff = {.first = milliseconds(1), .most = milliseconds(4), .seed = 1}});
  }

  /// An agent that takes whoever comes, and holds the last link. At port 0: any.
  void listen(std::uint16_t at = 0) {
    auto opened = Listener::open(
        loop.get_executor(),
        {.host = "127.0.0.1", .port = at},
        self_of(cluster.issue(Role::kAgent, "h" + std::to_string(++agents))),
        {Role::kManager},
        {.on_peer = [this](std::unique_ptr<HostLink> taken, const Peer&) {
          taken->start({.on_frame = [](const rpc::Frame&) {},
                        .on_closed =
                            [this](const Error& error) {
                              closed = error.message.substr(error.message.find("the peer"));
                            }});
          link = std::move(taken);
        }});
    HEDDLE_CHECK(opened.has_value());
    listener = std::move(*opened);
  }

  TestCluster cluster{};
  boost::asio::io_context loop{1};
  int managers = 0;
  int agents = 0;
  std::vector<Peer> ups{};
  std::vector<Error> downs{};
  std::vector<std::string> heard{};
  std::string closed{};  ///< What the agent was told last.
  std::unique_ptr<Listener> listener{};
  std::unique_ptr<HostLink> link{};
  std::unique_ptr<Connector> connector{};
};

TEST_F(Connecting, TriesUntilSomebodyIsThere) {
  listen();
  const std::uint16_t port = listener->port();
  listener.reset();
  connect(port);
  EXPECT_EQ(connector->send("too early").error().code, Code::kUnavailable);
  run_until(loop, [this] { return downs.size() == 3; });
  EXPECT_EQ(downs[2].code, Code::kUnavailable);
  EXPECT_EQ(downs[2].message, "link to 127.0.0.1:" + std::to_string(port) + ": Connection refused");
  EXPECT_TRUE(ups.empty());
  listen(port);
  run_until(loop, [this] { return !ups.empty() && link; });
  EXPECT_EQ(ups[0].identity.uri(), "heddle://prod/agent/h2");
  ASSERT_TRUE(link->send("welcome"));
  run_until(loop, [this] { return !heard.empty(); });
  EXPECT_EQ(heard[0], "welcome");
  EXPECT_EQ(connector->queued_bytes(), 0U);
}

TEST_F(Connecting, BeginsAnewWhenALinkHasEnded) {
  listen();
  connect(listener->port());
  for (std::size_t lives = 1; lives <= 3; ++lives) {
    run_until(loop, [&] { return ups.size() == lives && link; });
    EXPECT_EQ(downs.size(), lives - 1);
    link.reset();
    run_until(loop, [&] { return downs.size() == lives; });
    EXPECT_NE(downs.back().message.find("the peer has ended the link"), std::string::npos)
        << downs.back().message;
    EXPECT_EQ(connector->send("to nobody").error().code, Code::kUnavailable);
  }
}

TEST_F(Connecting, BeginsAnewWhenItHasEndedTheLinkItself) {
  listen();
  connect(listener->port());
  run_until(loop, [&] { return ups.size() == 1 && link; });
  connector->end("that makes no sense");
  EXPECT_TRUE(downs.empty()) << "not from within the call";
  EXPECT_EQ(connector->send("too late").error().code, Code::kUnavailable);
  connector->end("nor does this");
  run_until(loop, [this] { return ups.size() == 2; });
  ASSERT_EQ(downs.size(), 1U);
  EXPECT_EQ(
      downs[0].message,
      "link to 127.0.0.1:" + std::to_string(listener->port()) + " was ended: that makes no sense");
  EXPECT_EQ(closed, "the peer has ended the link: that makes no sense");
}

TEST_F(Connecting, SaysWhyItIsRefusedEachTime) {
  listen();
  connect(listener->port(), {.roles = {Role::kAgent}, .name = "another"});
  run_until(loop, [this] { return downs.size() == 2; });
  for (const Error& down : downs) {
    EXPECT_EQ(down.code, Code::kFailedPrecondition);
    EXPECT_NE(down.message.find("links with agent \"another\" of its own cluster"),
              std::string::npos)
        << down.message;
  }
  EXPECT_TRUE(ups.empty());
}

TEST_F(Connecting, GivesUpOnWhoDoesNotAnswer) {
  boost::asio::ip::tcp::acceptor silent(loop, {boost::asio::ip::address_v4::loopback(), 0});
  ConnectorOptions options;
  options.link.greeting = milliseconds(20);
  connector = std::make_unique<Connector>(
      loop.get_executor(),
      Address{.host = "127.0.0.1", .port = silent.local_endpoint().port()},
      self_of(cluster.issue(Role::kManager, "m")),
      Wanted{.roles = {Role::kAgent}},
      Connector::Handlers{.on_down = [this](const Error& error) { downs.push_back(error); }},
      options);
  run_until(loop, [this] { return !downs.empty(); });
  EXPECT_EQ(downs[0].code, Code::kUnavailable);
  EXPECT_NE(downs[0].message.find("it has not greeted within"), std::string::npos)
      << downs[0].message;
}

TEST_F(Connecting, MayBeDestroyedByItsHandlers) {
  enum class When { kUp, kDown, kFrame };
  listen();
  for (const When when : {When::kUp, When::kDown, When::kFrame}) {
    bool told = false;
    const auto end_at = [&](When now) {
      if (now == when) {
        told = true;
        connector.reset();
      }
    };
    link.reset();
    connector = std::make_unique<Connector>(
        loop.get_executor(),
        Address{.host = "127.0.0.1", .port = listener->port()},
        self_of(cluster.issue(Role::kManager, "m" + std::to_string(++managers))),
        Wanted{.roles = {Role::kAgent}, .name = when == When::kDown ? "another" : ""},
        Connector::Handlers{.on_up = [&](const Peer&) { end_at(When::kUp); },
                            .on_down = [&](const Error&) { end_at(When::kDown); },
                            .on_frame = [&](rpc::Frame) { end_at(When::kFrame); }});
    if (when == When::kFrame) {
      run_until(loop, [this] { return link != nullptr; });
      ASSERT_TRUE(link->send("one"));
    }
    run_until(loop, [&] { return told; });
  }
}

TEST_F(Connecting, MayBeDestroyedAtAnyMoment) {
  listen();
  for (int turns = 0; turns < 30; ++turns) {
    ups.clear();
    connect(listener->port());
    loop.restart();
    for (int i = 0; i < turns && ups.empty(); ++i) {
      loop.run_one();
    }
    connector.reset();
    const std::size_t told = ups.size() + downs.size();
    loop.restart();
    loop.poll();
    EXPECT_EQ(ups.size() + downs.size(), told) << "told after it was destroyed";
  }
}

}  // namespace
}  // namespace heddle::net
