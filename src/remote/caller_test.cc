#include "remote/caller.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "remote/test_host.h"

namespace heddle::remote {
namespace {

class CallerTest : public ::testing::Test {
 protected:
  void listen(std::size_t queued_most = kQueuedMost) {
    listener = test_listener(
        loop,
        net::self_of(cluster.issue(net::Role::kAgent, "h3")),
        {net::Role::kGateway},
        [this, queued_most](auto link, const auto& who) {
          caller.emplace(loop.get_executor(), std::move(link), who, handlers(), queued_most);
        });
    peer = std::make_unique<net::Connector>(
        loop.get_executor(),
        net::Address{.host = "127.0.0.1", .port = listener->port()},
        net::self_of(cluster.issue(net::Role::kGateway, "g")),
        net::Wanted{.roles = {net::Role::kAgent}},
        net::Connector::Handlers{
            .on_up = [](const net::Peer&) {},
            .on_down = [this](const Error& error) { downs.push_back(error.message); },
            .on_frame = [this](const rpc::Frame& frame) { heard.push_back(frame.payload); }});
    net::run_until(loop, [this] { return caller.has_value(); });
  }

  Caller::Handlers handlers() {
    return {.on_message = [this](const std::string& payload) -> Result<void> {
              if (payload == "end it") {
                caller.reset();
              }
              return payload == "nonsense"
                         ? Result<void>(Error{Code::kCorrupt, "that makes no sense"})
                         : Result<void>();
            },
            .on_gone = [this](const Error& why) { gone.push_back(why.message); }};
  }

  boost::asio::io_context loop{1};
  net::TestCluster cluster{};
  std::unique_ptr<net::Listener> listener{};
  std::unique_ptr<net::Connector> peer{};
  std::optional<Caller> caller{};
  std::vector<std::string> heard{};
  std::vector<std::string> downs{};
  std::vector<std::string> gone{};
};

TEST_F(CallerTest, EndsTheLinkOfWhoSaysNonsense) {
  listen();
  caller->send("welcome");
  net::run_until(loop, [this] { return !heard.empty(); });
  EXPECT_EQ(heard[0], "welcome");
  ASSERT_TRUE(peer->send("nonsense"));
  net::run_until(loop, [this] { return !gone.empty() && !downs.empty(); });
  EXPECT_NE(gone[0].find("gateway \"g\" of cluster \"prod\" at 127.0.0.1:"), std::string::npos)
      << gone[0];
  EXPECT_TRUE(gone[0].ends_with(": that makes no sense")) << gone[0];
  EXPECT_TRUE(downs[0].ends_with("that makes no sense")) << downs[0];
  caller->send("nobody hears this");
  EXPECT_EQ(caller->queued_bytes(), 0U);
}

TEST_F(CallerTest, EndsTheLinkOfWhoTakesTooLittle) {
  listen(1000);
  caller->send(std::string(900, 'x'));
  caller->send(std::string(1100, 'y'));
  EXPECT_TRUE(gone.empty()) << "not from within the call";
  net::run_until(loop, [this] { return !gone.empty() && !downs.empty(); });
  EXPECT_NE(gone[0].find("it takes too little of what it is sent: "), std::string::npos) << gone[0];
  EXPECT_EQ(gone.size(), 1U);
}

TEST_F(CallerTest, HearsOfTheEndOfItsPeer) {
  listen();
  peer.reset();
  net::run_until(loop, [this] { return !gone.empty(); });
  EXPECT_NE(gone[0].find("the peer has ended the link"), std::string::npos) << gone[0];
}

TEST_F(CallerTest, TellsNobodyOfAnEndThatWasAskedFor) {
  listen();
  caller->end("enough");
  net::run_until(loop, [this] { return !downs.empty(); });
  EXPECT_TRUE(downs[0].ends_with("the peer has ended the link: enough")) << downs[0];
  EXPECT_TRUE(gone.empty());
}

TEST_F(CallerTest, MayBeDestroyedByWhatItTells) {
  listen();
  ASSERT_TRUE(peer->send("end it"));
  net::run_until(loop, [this] { return !downs.empty(); });
  EXPECT_FALSE(caller.has_value());
  EXPECT_TRUE(gone.empty());
}

}  // namespace
}  // namespace heddle::remote
