#include "remote/engine_streams.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "remote/engine_service.h"
#include "remote/test_callee.h"
#include "remote/test_engine_server.h"

#include <sys/socket.h>

namespace heddle::remote {
namespace {

using Outcome = std::variant<std::monostate, net::CarriedConnection, net::CarriedEnd>;

/// A gateway, a host with one engine, and what was opened there.
class EngineStreamsTest : public ::testing::Test {
 protected:
  using Socket = boost::asio::generic::stream_protocol::socket;

  EngineStreamsTest() : host_self(net::self_of(cluster.issue(net::Role::kAgent, "h3"))) {
    host.listens[kModel] = engine.address();
    streams.emplace(loop.get_executor(),
                    net::self_of(cluster.issue(net::Role::kGateway, "g1")),
                    StreamOptions{.connector = test_connector()});
  }

  /// The host is there, and its engines can be reached.
  void start_host() {
    service.emplace(loop.get_executor(), host);
    listener =
        test_listener(loop, host_self, {net::Role::kGateway}, [this](auto link, const auto& peer) {
          service->take(std::move(link), peer);
        });
    know(listener->port());
  }
  void know(std::uint16_t port) {
    streams->set_hosts(
        {{.id = kHost, .name = "h3", .address = {.host = "127.0.0.1", .port = port}}});
  }
  void stop_host() {
    listener.reset();
    service.reset();
  }

  std::shared_ptr<Outcome> open(HostId where = kHost) {
    auto outcome = std::make_shared<Outcome>();
    streams->open(where, kModel, [outcome](auto result) {
      std::visit([&](auto& what) { *outcome = std::move(what); }, result);
    });
    return outcome;
  }
  /// Opens one that succeeds; both ends of it.
  void open_both() {
    const auto outcome = open();
    theirs = &engine.accept();
    net::run_until(loop, [&] { return outcome->index() > 0; });
    connection = std::get<net::CarriedConnection>(std::move(*outcome));
    ours.emplace(
        loop, boost::asio::generic::stream_protocol(AF_UNIX, 0), connection.socket.release());
    ours->non_blocking(true);
  }
  net::CarriedEnd failure(const std::shared_ptr<Outcome>& outcome) {
    net::run_until(loop, [&] { return outcome->index() > 0; });
    return std::get<net::CarriedEnd>(*outcome);
  }
  std::string read_ours(std::size_t count) {
    std::string all;
    bool closed = false;
    net::run_until(loop, [&] {
      all += read_some(*ours, closed);
      return all.size() >= count || closed;
    });
    return all;
  }
  /// Until our end is closed: what came before.
  std::string read_to_end() { return read_ours(SIZE_MAX); }

  net::TestCluster cluster{};
  boost::asio::io_context loop{};
  TestEngineServer engine{loop};
  NotingHost host{};
  const net::Self host_self;
  std::optional<EngineService> service{};
  std::unique_ptr<net::Listener> listener{};
  std::optional<EngineStreams> streams{};
  net::CarriedConnection connection{};
  std::optional<Socket> ours{};
  TestEngineServer::Socket* theirs = nullptr;
};

TEST_F(EngineStreamsTest, MegabytesGoBothWaysUnchanged) {
  start_host();
  open_both();
  EXPECT_EQ(connection.address, engine.address());
  std::string bytes(8'000'000, '\0');
  Rng rng(8);
  for (char& byte : bytes) {
    byte = static_cast<char>(rng.below(256));
  }
  bool closed = false;
  const auto carry = [&](auto& from, auto& to) {
    std::size_t sent = 0;
    std::string got;
    net::run_until(loop, [&] {
      boost::system::error_code full;
      sent += from.write_some(boost::asio::buffer(bytes.data() + sent, bytes.size() - sent), full);
      got += read_some(to, closed);
      return got.size() >= bytes.size() || closed;
    });
    return got;
  };
  EXPECT_TRUE(carry(*ours, *theirs) == bytes);
  EXPECT_TRUE(carry(*theirs, *ours) == bytes);
  EXPECT_FALSE(closed);
}

TEST_F(EngineStreamsTest, AnEngineThatHangsUpInPeaceLeavesNoError) {
  start_host();
  open_both();
  boost::asio::write(*theirs, boost::asio::buffer(std::string("last")));
  theirs->close();
  EXPECT_EQ(read_to_end(), "last");
  EXPECT_FALSE(connection.end->has_value());
}

TEST_F(EngineStreamsTest, OneThatBreaksTheConnectionIsToBlameItself) {
  start_host();
  open_both();
  theirs->set_option(boost::asio::socket_base::linger(true, 0));
  theirs->close();
  read_to_end();
  ASSERT_TRUE(connection.end->has_value());
  EXPECT_FALSE((*connection.end)->cut);
}

TEST_F(EngineStreamsTest, AHostThatDiesCutsWhatItCarriesAfterWhatItSent) {
  start_host();
  open_both();
  boost::asio::write(*theirs, boost::asio::buffer(std::string("half")));
  EXPECT_EQ(read_ours(4), "half");
  stop_host();
  EXPECT_EQ(read_to_end(), "");
  ASSERT_TRUE(connection.end->has_value());
  EXPECT_TRUE((*connection.end)->cut);
}

TEST_F(EngineStreamsTest, WhatCannotBeOpenedSaysWhoIsToBlame) {
  start_host();
  EXPECT_TRUE(failure(open(HostId(9))).cut) << "there is no such host";
  engine.stop_listening();
  EXPECT_FALSE(failure(open()).cut) << "the host is there, and says so";
  stop_host();
  EXPECT_TRUE(failure(open()).cut);
}

TEST_F(EngineStreamsTest, OneThatWasAskedForWhileTheHostWasAwayIsOpenedWhenItComes) {
  start_host();
  const std::uint16_t port = listener->port();
  open_both();
  stop_host();
  read_to_end();
  EXPECT_TRUE(failure(open()).cut);
  service.emplace(loop.get_executor(), host);
  auto opened = net::Listener::open(
      loop.get_executor(),
      {.host = "127.0.0.1", .port = port},
      host_self,
      {net::Role::kGateway},
      {.on_peer = [this](auto link, const auto& peer) { service->take(std::move(link), peer); }});
  ASSERT_TRUE(opened);
  listener = std::move(*opened);
  std::shared_ptr<Outcome> outcome = open();
  net::run_until(loop, [&] {
    if (std::holds_alternative<net::CarriedEnd>(*outcome)) {
      outcome = open();  // A try that had begun before.
    }
    return std::holds_alternative<net::CarriedConnection>(*outcome);
  });
}

TEST_F(EngineStreamsTest, WhoeverHangsUpHereHangsUpThere) {
  start_host();
  open_both();
  ours->close();
  bool closed = false;
  net::run_until(loop, [&] {
    (void)read_some(*theirs, closed);
    return closed;
  });
}

TEST_F(EngineStreamsTest, OneThatRestsIsWaitedForByNobody) {
  start_host();
  open_both();
  boost::asio::write(*ours, boost::asio::buffer(std::string("ask")));
  net::run_until(loop, [this] { return service->silent_since(kModel).has_value(); });
  connection.idle();
  net::run_until(loop, [this] { return !service->silent_since(kModel).has_value(); });
  streams.reset();
  connection.idle();
}

TEST_F(EngineStreamsTest, AHostThatBreaksTheRulesHasItsLinkEnded) {
  TestCallee<ToEngines> odd(loop, host_self, decode_to_engines);
  know(odd.address().port);
  const auto outcome = open();
  odd.run_linked(1);
  odd.say(FromEngines(StreamBytes{.stream = StreamId(1), .bytes = "early"}));
  EXPECT_NE(odd.end().find("before it has opened it"), std::string::npos);
  EXPECT_TRUE(failure(outcome).cut);
}

}  // namespace
}  // namespace heddle::remote
