#include "remote/kv_links.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "remote/test_host.h"

namespace heddle::remote {
namespace {

class KvLinksTest : public ::testing::Test {
 protected:
  KvLinksTest() {
    const KvLinksOptions quick{.silence = std::chrono::milliseconds(300)};
    asker.emplace(
        loop.get_executor(),
        net::self_of(cluster.issue(net::Role::kAgent, "h1")),
        [](const rpc::KvAsk&, const agent::KvAnswer&) { FAIL() << "nobody asks this host"; },
        quick);
    const net::Self other = net::self_of(cluster.issue(net::Role::kAgent, "h2"));
    giver.emplace(
        loop.get_executor(),
        other,
        [this](rpc::KvAsk ask, agent::KvAnswer answer) { give(std::move(ask), std::move(answer)); },
        quick);
    listener =
        test_listener(loop, other, {net::Role::kAgent}, [this](auto link, const net::Peer& peer) {
          EXPECT_EQ(peer.use, rpc::LinkUse::kKv);
          ++links;
          giver->take(std::move(link), peer);
        });
  }
  [[nodiscard]] rpc::KvAsk wanted(std::uint64_t number) const {
    return {.ask = number,
            .from = {.device = DeviceId(9),
                     .model = ModelId(3),
                     .host = {.name = "h2", .address = "127.0.0.1", .port = listener->port()}},
            .cache_salt = "salt",
            .tokens = {1, 2, 3, 4, 5, 6},
            .begin = 2,
            .end = 5};
  }
  /// What is answered.
  rpc::KvGiven ask(std::uint64_t number) {
    std::optional<rpc::KvGiven> given;
    asker->ask(wanted(number), [&](rpc::KvGiven answer) { given = std::move(answer); });
    EXPECT_FALSE(given) << "not from within the call";
    net::run_until(loop, [&] { return given.has_value(); });
    return *given;
  }

  net::TestCluster cluster{};
  boost::asio::io_context loop{};
  int links = 0;
  std::vector<rpc::KvAsk> asked{};
  std::function<void(rpc::KvAsk, agent::KvAnswer)> give = [this](rpc::KvAsk ask,
                                                                 const agent::KvAnswer& answer) {
    asked.push_back(ask);
    answer({.ask = ask.ask,
            .prefix = 5,
            .begin = ask.begin,
            .end = ask.end,
            .first_layer = 1,
            .from = {2, 3},
            .bytes = std::string(300'000, 'k')});
  };
  std::unique_ptr<net::Listener> listener{};
  std::optional<KvLinks> asker{};
  std::optional<KvLinks> giver{};
};

TEST_F(KvLinksTest, AsksAnotherHostAndHearsWhatItGives) {
  const rpc::KvGiven given = ask(77);
  EXPECT_EQ(given.ask, 77U) << "as it was asked";
  EXPECT_EQ(given.prefix, 5);
  EXPECT_EQ(given.end, 5);
  EXPECT_EQ(given.from, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(given.bytes.size(), 300'000U);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].from.device, DeviceId(9));
  EXPECT_TRUE(asked[0].from.host.name.empty()) << "it is the host's own";
  EXPECT_EQ(asked[0].tokens.size(), 6U);
  EXPECT_EQ(asked[0].cache_salt, "salt");
  (void)ask(78);
  EXPECT_EQ(links, 1) << "one link for all";
}

TEST_F(KvLinksTest, OneThatIsSilentGivesNothingAndIsAskedAnew) {
  auto gives = std::exchange(give, [](const rpc::KvAsk&, const agent::KvAnswer&) {});
  const rpc::KvGiven nothing = ask(5);
  EXPECT_EQ(nothing.ask, 5U);
  EXPECT_EQ(nothing.begin, nothing.end);
  EXPECT_TRUE(nothing.bytes.empty());
  give = gives;
  EXPECT_EQ(ask(6).end, 5);
  EXPECT_EQ(links, 2);
}

TEST_F(KvLinksTest, OneThatCannotBeReachedGivesNothing) {
  rpc::KvAsk nowhere = wanted(4);
  listener.reset();
  std::optional<rpc::KvGiven> given;
  asker->ask(nowhere, [&](rpc::KvGiven answer) { given = std::move(answer); });
  net::run_until(loop, [&] { return given.has_value(); });
  EXPECT_EQ(given->ask, 4U);
  EXPECT_TRUE(given->bytes.empty());
}

TEST_F(KvLinksTest, OneThatEndsInTheMiddleGivesNothing) {
  give = [this](const rpc::KvAsk&, const agent::KvAnswer&) {
    boost::asio::post(loop, [this] { giver.reset(); });
  };
  EXPECT_TRUE(ask(1).bytes.empty());
}

TEST_F(KvLinksTest, AnAnswerToSomethingElseEndsTheLink) {
  give = [](const rpc::KvAsk& ask, const agent::KvAnswer& answer) {
    answer({.ask = ask.ask + 9, .bytes = "what"});
  };
  EXPECT_TRUE(ask(1).bytes.empty());
}

}  // namespace
}  // namespace heddle::remote
