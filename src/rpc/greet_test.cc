#include "rpc/greet.h"

#include <gtest/gtest.h>

#include "base/wire.h"
#include "rpc/greet_fields.h"
#include "rpc/messages.h"

namespace heddle::rpc {
namespace {

Greet some_greet() {
  return {.cluster = "prod",
          .role = "agent",
          .name = "h1",
          .incarnation = 7,
          .versions = {.least = 1, .most = 2},
          .build = "0.9",
          .isa = "v4"};
}

TEST(Greet, ComesBackAsItWas) {
  for (const HostMessage& sent :
       {HostMessage(some_greet()), HostMessage(Alive{}), HostMessage(Bye{.why = "is stopping"})}) {
    const std::string bytes = encode(sent);
    EXPECT_TRUE(is_host_message(bytes));
    const Result<HostMessage> got = decode_host_message(bytes);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, sent);
  }
}

TEST(Greet, IsRefusedWhereItMakesNoSense) {
  Greet greet = some_greet();
  greet.versions = {.least = 3, .most = 2};
  EXPECT_EQ(decode_host_message(encode(greet)).error().code, Code::kCorrupt);
  greet = some_greet();
  greet.versions = {};
  EXPECT_FALSE(decode_host_message(encode(greet)));
  greet = some_greet();
  greet.isa.assign(256, 'x');
  EXPECT_FALSE(decode_host_message(encode(greet)));
  EXPECT_FALSE(decode_host_message(encode(Bye{.why = std::string(1025, 'x')})));
  EXPECT_FALSE(decode_host_message(""));
}

TEST(Greet, IsNotTakenForWhatUsersOfALinkSay) {
  EXPECT_FALSE(is_host_message(""));
  EXPECT_FALSE(is_host_message("\xb2"));
  EXPECT_FALSE(is_host_message(encode(ToWorker(Shutdown{}))));
  EXPECT_FALSE(is_host_message(encode(ToWorker(MeetHost{}))));
  EXPECT_FALSE(is_host_message(encode(ToServe{.epoch = WorkerEpoch(1), .body = HelloAck{}})));
  EXPECT_FALSE(is_host_message("GET / HTTP/1.1"));
}

TEST(Greet, ChoosesTheHighestVersionOfBoth) {
  EXPECT_EQ(*common_version({1, 2}, {2, 3}), 2U);
  EXPECT_EQ(*common_version({2, 3}, {1, 2}), 2U);
  EXPECT_EQ(*common_version({1, 3}, {2, 3}), 3U);
  EXPECT_EQ(*common_version({4, 4}, {4, 4}), 4U);
  const Result<std::uint32_t> none = common_version({1, 2}, {3, 4});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kFailedPrecondition);
  EXPECT_NE(none.error().message.find("1 to 2, the other 3 to 4"), std::string::npos)
      << none.error().message;
}

}  // namespace
}  // namespace heddle::rpc
