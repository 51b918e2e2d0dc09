#include "agent/group.h"

#include <cstddef>

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

namespace heddle::agent {
namespace {

constexpr HostId kHere{1};
constexpr HostId kThere{2};

/// Stages on devices of these hosts.
core::ConnectGroup stages_on(const std::vector<HostId>& hosts) {
  core::ConnectGroup command{
      .hosts = {{.id = kHere, .name = "h1", .port = 1}, {.id = kThere, .name = "h2", .port = 2}}};
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    command.members.push_back({.device = device_id(hosts[i], i), .model = ModelId(i + 1)});
  }
  return command;
}

bool is_here(DeviceId device) {
  return host_of(device) == kHere;
}

/// Whether what goes in at one end comes out at the other.
bool joined(const rpc::Descriptor& from, const rpc::Descriptor& to) {
  const char sent = 'x';
  char got = 0;
  return ::send(from.get(), &sent, 1, MSG_NOSIGNAL) == 1 &&
         ::recv(to.get(), &got, 1, MSG_DONTWAIT) == 1 && got == sent;
}

TEST(ConnectMembers, StagesOfOneHostMakeARing) {
  const auto ends = connect_members(stages_on({kHere, kHere, kHere}), true, is_here);
  ASSERT_TRUE(ends);
  EXPECT_TRUE(ends->edges.empty());
  for (std::size_t stage = 0; stage < 3; ++stage) {
    ASSERT_EQ(ends->members[stage].size(), 2U);
    EXPECT_TRUE(joined(ends->members[stage][1], ends->members[(stage + 1) % 3][0]));
  }
}

TEST(ConnectMembers, WhereTheNextStageIsElsewhereThereIsAnEdge) {
  const auto ends = connect_members(stages_on({kHere, kHere, kThere, kThere}), true, is_here);
  ASSERT_TRUE(ends);
  EXPECT_TRUE(joined(ends->members[0][1], ends->members[1][0]));
  EXPECT_TRUE(ends->members[2].empty()) << "that worker is not here";
  ASSERT_EQ(ends->edges.size(), 2U) << "two stages elsewhere are not this host's to connect";
  const Edge& out = ends->edges[0];
  EXPECT_EQ(out.stage, 1);
  EXPECT_TRUE(out.begins);
  EXPECT_EQ(out.peer.name, "h2");
  EXPECT_TRUE(joined(ends->members[1][1], out.socket));
  const Edge& in = ends->edges[1];
  EXPECT_EQ(in.stage, 3);
  EXPECT_FALSE(in.begins);
  EXPECT_TRUE(joined(in.socket, ends->members[0][0]));
}

TEST(ConnectMembers, RanksThatSumTogetherAreOnOneHost) {
  const auto together = connect_members(stages_on({kHere, kHere}), false, is_here);
  ASSERT_TRUE(together);
  EXPECT_EQ(together->members[0].size(), 2U) << "memory, and a socket to rank 1";
  const auto apart = connect_members(stages_on({kHere, kThere}), false, is_here);
  ASSERT_FALSE(apart);
  EXPECT_EQ(apart.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::agent
