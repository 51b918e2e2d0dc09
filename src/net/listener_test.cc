#include "net/listener.h"

#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "net/connector.h"
#include "net/test_cluster.h"

namespace heddle::net {
namespace {

using std::chrono::milliseconds;

class Listening : public ::testing::Test {
 protected:
  /// An agent that answers what it hears, and gathers who has come.
  void listen(ListenerOptions options = {}) {
    auto opened =
        Listener::open(loop.get_executor(),
                       {.host = "127.0.0.1"},
                       self_of(cluster.issue(Role::kAgent, "h" + std::to_string(++agents))),
                       {Role::kManager, Role::kGateway},
                       {.on_peer = [this](std::unique_ptr<HostLink> link,
                                          const Peer& peer) { take(std::move(link), peer); },
                        .on_refused = [this](const Error& error) { refused.push_back(error); }},
                       options);
    HEDDLE_CHECK(opened.has_value());
    listener = std::move(*opened);
    port = listener->port();
  }

  void take(std::unique_ptr<HostLink> link, const Peer& peer) {
    HostLink* const raw = link.get();
    raw->start(
        {.on_frame = [raw](rpc::Frame frame) { EXPECT_TRUE(raw->send("heard " + frame.payload)); },
         .on_closed = [](const Error&) {}});
    links[peer.identity.name] = std::move(link);
  }

  /// A connection of somebody who says nothing.
  TcpSocket stranger() {
    TcpSocket socket(loop);
    socket.connect({boost::asio::ip::address_v4::loopback(), port});
    return socket;
  }

  TestCluster cluster{};
  boost::asio::io_context loop{1};
  int agents = 0;
  std::uint16_t port = 0;
  std::map<std::string, std::unique_ptr<HostLink>> links{};
  std::vector<Error> refused{};
  std::unique_ptr<Listener> listener{};
};

/// Says its name as soon as it is up.
struct Client {
  Client(boost::asio::io_context& loop, std::uint16_t port, const Self& self, const Wanted& wanted)
      : connector(std::make_unique<Connector>(
            loop.get_executor(),
            Address{.host = "127.0.0.1", .port = port},
            self,
            wanted,
            Connector::Handlers{.on_up =
                                    [this, self](const Peer&) {
                                      EXPECT_TRUE(
                                          connector->send(self.credentials->identity().name));
                                    },
                                .on_down = [this](const Error& error) { down = error; },
                                .on_frame = [this](rpc::Frame frame) { heard = frame.payload; }})) {
  }

  std::string heard{};
  std::optional<Error> down{};
  std::unique_ptr<Connector> connector;
};

TEST_F(Listening, TakesSeveralLinksAtOnce) {
  listen();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    const Role role = i % 2 == 0 ? Role::kManager : Role::kGateway;
    clients.push_back(
        std::make_unique<Client>(loop,
                                 port,
                                 self_of(cluster.issue(role, "c" + std::to_string(i))),
                                 Wanted{.roles = {Role::kAgent}}));
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    run_until(loop, [&] { return !clients[i]->heard.empty(); });
    EXPECT_EQ(clients[i]->heard, "heard c" + std::to_string(i));
  }
  EXPECT_EQ(links.size(), clients.size());
  EXPECT_TRUE(refused.empty());
}

TEST_F(Listening, TellsWhoWasRefused) {
  listen();
  Client client(loop, port, self_of(cluster.issue(Role::kAgent, "h9")), {.roles = {Role::kAgent}});
  run_until(loop, [&] { return !refused.empty() && client.down; });
  EXPECT_NE(refused[0].message.find("agent \"h9\" of cluster \"prod\" is not wanted here"),
            std::string::npos)
      << refused[0].message;
  EXPECT_NE(refused[0].message.find("links with manager or gateway"), std::string::npos);
  EXPECT_NE(client.down->message.find("the peer refuses us"), std::string::npos)
      << client.down->message;
  EXPECT_TRUE(links.empty());
}

TEST_F(Listening, DropsTheOldestOfTooManyStrangers) {
  listen({.pending_max = 3});
  std::vector<TcpSocket> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(stranger());
  }
  run_until(loop, [this] { return refused.size() == 2; });
  EXPECT_EQ(refused[0].code, Code::kResourceExhausted);
  for (std::size_t i = 0; i < 2; ++i) {
    char byte = 0;
    EXPECT_EQ(::read(strangers[i].native_handle(), &byte, 1), 0) << "the oldest are closed";
  }
  // Whoever greets is taken all the same.
  Client client(loop,
                port,
                self_of(cluster.issue(Role::kManager, "m")),
                {.roles = {Role::kAgent}, .name = "h1"});
  run_until(loop, [&] { return client.heard == "heard m"; });
  EXPECT_EQ(refused.size(), 3U);
}

TEST_F(Listening, DropsStrangersThatSayNothing) {
  listen({.link = {.greeting = milliseconds(20)}});
  TcpSocket silent = stranger();
  run_until(loop, [this] { return !refused.empty(); });
  EXPECT_NE(refused[0].message.find("it has not greeted within"), std::string::npos);
}

TEST_F(Listening, LeavesItsLinksAloneWhenItGoes) {
  listen();
  Client client(loop, port, self_of(cluster.issue(Role::kManager, "m")), {.roles = {Role::kAgent}});
  TcpSocket silent = stranger();
  run_until(loop, [&] { return client.heard == "heard m"; });
  listener.reset();
  ASSERT_TRUE(client.connector->send("again"));
  run_until(loop, [&] { return client.heard == "heard again"; });
  char byte = 0;
  EXPECT_EQ(::read(silent.native_handle(), &byte, 1), 0) << "whoever has not greeted is dropped";
}

TEST_F(Listening, MayBeDestroyedByItsHandlers) {
  for (const bool welcome : {true, false}) {
    bool told = false;
    const auto end = [&] {
      told = true;
      listener.reset();
    };
    auto opened = Listener::open(loop.get_executor(),
                                 {.host = "127.0.0.1"},
                                 self_of(cluster.issue(Role::kAgent, welcome ? "one" : "two")),
                                 {welcome ? Role::kManager : Role::kGateway},
                                 {.on_peer = [&](std::unique_ptr<HostLink>, const Peer&) { end(); },
                                  .on_refused = [&](const Error&) { end(); }});
    ASSERT_TRUE(opened);
    listener = std::move(*opened);
    Client client(loop,
                  listener->port(),
                  self_of(cluster.issue(Role::kManager, welcome ? "m1" : "m2")),
                  {.roles = {Role::kAgent}});
    run_until(loop, [&] { return told && client.down; });
  }
}

TEST_F(Listening, SaysWhereItCannotListen) {
  listen();
  const auto open_at = [this](const Address& address) {
    const auto opened = Listener::open(loop.get_executor(),
                                       address,
                                       self_of(cluster.issue(Role::kAgent, "x" + address.host)),
                                       {Role::kManager},
                                       {});
    return opened ? std::string("listens") : opened.error().message;
  };
  EXPECT_EQ(open_at({.host = "127.0.0.1", .port = port}),
            "listen at 127.0.0.1:" + std::to_string(port) + ": Address already in use");
  EXPECT_NE(open_at({.host = "everywhere", .port = 1}).find("is no numeric address"),
            std::string::npos);
}

}  // namespace
}  // namespace heddle::net
