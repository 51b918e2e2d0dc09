#include "remote/engine_service.h"

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "remote/stream_messages.h"
#include "remote/test_engine_server.h"
#include "remote/test_host.h"

namespace heddle::remote {
namespace {

constexpr StreamId kFirst{1};
constexpr StreamId kSecond{2};

/// A host with one engine, and gateways that link to it.
class EngineServiceTest : public ::testing::Test {
 protected:
  using Gateway = TestCaller<FromEngines>;

  EngineServiceTest() {
    host.listens[kModel] = engine.address();
    service.emplace(loop.get_executor(), host, StreamOptions{.streams_most = 2});
    listener = test_listener(loop,
                             net::self_of(cluster.issue(net::Role::kAgent, "h3")),
                             {net::Role::kGateway},
                             [this](auto link, const auto& peer) {
                               EXPECT_EQ(peer.use, rpc::LinkUse::kEngines);
                               service->take(std::move(link), peer);
                             });
    self = net::self_of(cluster.issue(net::Role::kGateway, "g1"));
    self.use = rpc::LinkUse::kEngines;
    gateway = std::make_unique<Gateway>(loop, listener->port(), self, decode_from_engines);
  }

  void say(const ToEngines& message) { gateway->say(message); }
  /// Opens the stream, and gives the engine's end of it.
  TestEngineServer::Socket& open(StreamId stream = kFirst) {
    say(OpenStream{.stream = stream, .model = kModel});
    TestEngineServer::Socket& socket = engine.accept();
    gateway->next<StreamOpened>();
    return socket;
  }
  std::string read(TestEngineServer::Socket& socket, std::size_t count) {
    std::string all;
    net::run_until(loop, [&] {
      all += read_some(socket, closed);
      return all.size() >= count || closed;
    });
    return all;
  }
  void run_closed(TestEngineServer::Socket& socket) {
    net::run_until(loop, [&] {
      (void)read_some(socket, closed);
      return closed;
    });
  }

  net::TestCluster cluster{};
  boost::asio::io_context loop{};
  TestEngineServer engine{loop};
  NotingHost host{};
  std::optional<EngineService> service{};
  std::unique_ptr<net::Listener> listener{};
  net::Self self{};
  std::unique_ptr<Gateway> gateway{};
  bool closed = false;  ///< The socket that was read last.
};

TEST_F(EngineServiceTest, BytesGoBothWaysUnchanged) {
  say(OpenStream{.stream = kFirst, .model = kModel});
  say(StreamBytes{.stream = kFirst, .bytes = "early"});
  TestEngineServer::Socket& socket = engine.accept();
  const auto opened = gateway->next<StreamOpened>();
  EXPECT_EQ(opened.host, "127.0.0.1");
  EXPECT_EQ(opened.port, engine.address().port);
  EXPECT_EQ(opened.base_path, "/base");
  EXPECT_EQ(read(socket, 5), "early");
  boost::asio::write(socket, boost::asio::buffer(std::string("answer")));
  EXPECT_EQ(gateway->next<StreamBytes>().bytes, "answer");
  socket.close();
  EXPECT_FALSE(gateway->next<StreamEnded>().error.has_value());
}

TEST_F(EngineServiceTest, AnEngineThatBreaksTheConnectionIsAnError) {
  TestEngineServer::Socket& socket = open();
  socket.set_option(boost::asio::socket_base::linger(true, 0));
  socket.close();
  EXPECT_TRUE(gateway->next<StreamEnded>().error.has_value());
}

TEST_F(EngineServiceTest, WhereThereIsNoEngineTheStreamEndsAtOnce) {
  say(OpenStream{.stream = kFirst, .model = ModelId(99)});
  EXPECT_EQ(gateway->next<StreamEnded>().error->code, Code::kNotFound);
  engine.stop_listening();
  say(OpenStream{.stream = kSecond, .model = kModel});
  EXPECT_EQ(gateway->next<StreamEnded>().error->code, Code::kUnavailable);
}

TEST_F(EngineServiceTest, AGatewayHangsUpOnOneAndNotTheOthers) {
  TestEngineServer::Socket& first = open(kFirst);
  TestEngineServer::Socket& second = open(kSecond);
  say(StreamEnded{.stream = kFirst});
  run_closed(first);
  say(StreamBytes{.stream = kFirst, .bytes = "late"});
  say(StreamBytes{.stream = kSecond, .bytes = "more"});
  closed = false;
  EXPECT_EQ(read(second, 4), "more");
}

TEST_F(EngineServiceTest, WithItsLinkAllConnectionsOfAGatewayEnd) {
  TestEngineServer::Socket& socket = open();
  gateway->leave();
  run_closed(socket);
}

TEST_F(EngineServiceTest, AnotherLinkOfTheSameGatewayReplacesTheFirst) {
  TestEngineServer::Socket& socket = open();
  Gateway again(loop, listener->port(), self, decode_from_engines);
  run_closed(socket);
  EXPECT_NE(gateway->end().find("replaces this one"), std::string::npos);
  gateway->leave();
}

TEST_F(EngineServiceTest, SaysSinceWhenAnEngineIsSilentWhileSomebodyWaits) {
  TestEngineServer::Socket& socket = open();
  EXPECT_FALSE(service->silent_since(kModel).has_value());
  say(StreamBytes{.stream = kFirst, .bytes = "ask"});
  read(socket, 3);
  const std::optional<Instant> asked = service->silent_since(kModel);
  ASSERT_TRUE(asked.has_value());
  EXPECT_FALSE(service->silent_since(ModelId(99)).has_value());
  boost::asio::write(socket, boost::asio::buffer(std::string("answer")));
  gateway->next<StreamBytes>();
  EXPECT_GE(*service->silent_since(kModel), *asked);
  say(StreamIdle{.stream = kFirst});
  net::run_until(loop, [this] { return !service->silent_since(kModel).has_value(); });
}

TEST_F(EngineServiceTest, AGatewayHasOnlySoManyConnections) {
  open(kFirst);
  open(kSecond);
  say(OpenStream{.stream = StreamId(3), .model = kModel});
  EXPECT_EQ(gateway->next<StreamEnded>().error->code, Code::kResourceExhausted);
}

TEST_F(EngineServiceTest, WhoeverBreaksTheRulesHasItsLinkEnded) {
  open(kSecond);
  say(OpenStream{.stream = kFirst, .model = kModel});
  EXPECT_NE(gateway->end().find("want a greater number"), std::string::npos);
  net::run_until(loop, [this] { return gateway->ups == 2; });
  open(kFirst);
  say(StreamTaken{.stream = kFirst, .bytes = 7});
  EXPECT_NE(gateway->end().find("was sent 0"), std::string::npos);
}

}  // namespace
}  // namespace heddle::remote
