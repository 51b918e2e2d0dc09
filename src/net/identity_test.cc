#include "net/identity.h"

#include <gtest/gtest.h>

namespace heddle::net {
namespace {

TEST(Identity, ReadsWhatItWrites) {
  for (const Role role : {Role::kManager, Role::kGateway, Role::kAgent}) {
    const Identity identity{.cluster = "prod-1", .role = role, .name = "h1.rack_2"};
    const Result<Identity> again = parse_identity(identity.uri());
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, identity);
  }
  const Identity identity{.cluster = "prod", .role = Role::kAgent, .name = "h1"};
  EXPECT_EQ(identity.uri(), "heddle://prod/agent/h1");
  EXPECT_EQ(identity.text(), "agent \"h1\" of cluster \"prod\"");
}

TEST(Identity, RefusesWhatNamesNobody) {
  for (const std::string uri : {"",
                                "heddle://",
                                "heddle://prod",
                                "heddle://prod/agent",
                                "heddle://prod/agent/",
                                "heddle:///agent/h1",
                                "heddle://prod/worker/h1",
                                "heddle://prod/Agent/h1",
                                "heddle://prod/agent/h1/x",
                                "heddle://prod/agent/h 1",
                                "heddle://prod/agent/-h1",
                                "heddle://prod/agent/h1\n",
                                "spiffe://prod/agent/h1",
                                " heddle://prod/agent/h1"}) {
    EXPECT_FALSE(parse_identity(uri)) << uri;
  }
  EXPECT_FALSE(parse_identity(std::string("heddle://prod/agent/h1\0", 23)));
  EXPECT_FALSE(check_name("host", std::string(201, 'x')));
  EXPECT_TRUE(check_name("host", std::string(200, 'x')));
}

}  // namespace
}  // namespace heddle::net
