#include "node/roster.h"

#include <chrono>
#include <string>

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/clock.h"
#include "node/membership.h"
#include "remote/test_folder.h"

namespace heddle::node {
namespace {

using testing::ElementsAre;

remote::HostAddress at(std::uint64_t id, const std::string& name, const std::string& host) {
  return {.id = HostId(id), .name = name, .address = {.host = host, .port = 7701}};
}

TEST(Roster, HasWhomTheConfigurationLists) {
  boost::asio::io_context loop{1};
  const Roster roster(loop.get_executor(),
                      {.hosts = {{.name = "h1", .host = "a", .port = 7701},
                                 {.name = "h2", .host = "b", .port = 7701}},
                       .gateways = {"g1", "g2"}},
                      nullptr,
                      [] { FAIL() << "nothing changes"; });
  EXPECT_THAT(roster.hosts(), ElementsAre(at(1, "h1", "a"), at(2, "h2", "b")));
  EXPECT_EQ(roster.gateway("g2"), FrontId(2));
  EXPECT_EQ(roster.gateway("g3"), std::nullopt);
  EXPECT_EQ(roster.gateways(), 2U);
}

/// A cluster whose hosts and gateways join.
struct JoiningTest : testing::Test {
  JoiningTest() {
    config.cluster = config::ClusterConfig{.registry = "file:" + folder.path.string()};
  }
  /// Runs the loop until something is so.
  template <class Condition>
  void until(Condition so) {
    const Instant end = steady_now() + std::chrono::seconds(30);
    while (!so()) {
      HEDDLE_CHECK(steady_now() < end);
      loop.restart();
      loop.run_for(std::chrono::milliseconds(5));
    }
  }
  std::unique_ptr<Membership> join(net::Role role, NodeSelf& self) {
    auto joined = Membership::begin(loop, config, role, self);
    HEDDLE_CHECK(joined.has_value());
    return std::move(*joined);
  }
  void leave(Membership& one) {
    bool left = false;
    one.leave([&] { left = true; });
    until([&] { return left; });
  }

  remote::TestFolder folder{};
  boost::asio::io_context loop{1};
  config::Config config{};
};

TEST_F(JoiningTest, WhoeverHasJoinedIsThereUntilItLeaves) {
  int changes = 0;
  auto registry = cluster::open_registry(loop.get_executor(), config.cluster->registry);
  const Roster roster(loop.get_executor(), *config.cluster, *registry, [&] { ++changes; });
  EXPECT_TRUE(roster.hosts().empty());
  NodeSelf one{.name = "h1", .address = {.host = "10.0.0.2", .port = 7701}};
  NodeSelf two{.name = "h2", .address = {.host = "fd00::1", .port = 7701}};
  NodeSelf gateway{.name = "g1"};
  const auto first = join(net::Role::kAgent, one);
  const auto second = join(net::Role::kAgent, two);
  const auto front = join(net::Role::kGateway, gateway);
  EXPECT_EQ(two.number, 2U);
  EXPECT_EQ(gateway.number, 1U);
  until([&] { return roster.hosts().size() == 2 && roster.gateways() == 1; });
  EXPECT_THAT(roster.hosts(), ElementsAre(at(1, "h1", "10.0.0.2"), at(2, "h2", "fd00::1")));
  EXPECT_EQ(roster.gateway("g1"), FrontId(1));
  EXPECT_GE(changes, 2);
  leave(*first);
  until([&] { return roster.hosts().size() == 1; });
  EXPECT_EQ(roster.hosts()[0].name, "h2");
}

TEST_F(JoiningTest, ANameKeepsItsNumberAndEachLifeHasAGreaterIncarnation) {
  NodeSelf one{.name = "h1", .address = {.host = "10.0.0.2", .port = 7701}};
  NodeSelf other{.name = "h2", .address = {.host = "10.0.0.3", .port = 7701}};
  const auto stays = join(net::Role::kAgent, other);
  const auto first = join(net::Role::kAgent, one);
  EXPECT_EQ(one.number, 2U);
  leave(*first);
  NodeSelf again{.name = "h1", .address = {.host = "10.0.0.9", .port = 7701}};
  const auto second = join(net::Role::kAgent, again);
  EXPECT_EQ(again.number, 2U);
  EXPECT_GT(again.self.incarnation, one.self.incarnation);
}

TEST_F(JoiningTest, WhomTheConfigurationListsNeedsNoRegistry) {
  config.cluster = config::ClusterConfig{
      .registry = "file:/nowhere/at/all", .hosts = {{.name = "h1"}}, .gateways = {"g1"}};
  NodeSelf self{.name = "h1", .number = 1};
  const auto member = join(net::Role::kAgent, self);
  EXPECT_EQ(self.number, 1U);
  leave(*member);
}

}  // namespace
}  // namespace heddle::node
