#include "remote/callee.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remote/test_callee.h"

namespace heddle::remote {
namespace {

using testing::HasSubstr;

Result<std::variant<std::string>> decode_text(std::string_view bytes) {
  return std::variant<std::string>(std::string(bytes));
}

/// A gateway's end of a link to an agent that says what the test has it say.
class CalleeTest : public ::testing::Test {
 protected:
  void link(std::size_t queued_most = kQueuedMost) {
    callee.emplace(loop.get_executor(),
                   agent.address(),
                   self,
                   net::Wanted{.roles = {net::Role::kAgent}, .name = "h1"},
                   Callee::Handlers{.on_up = [this] { on_up(); },
                                    .on_message =
                                        [this](const std::string& payload) {
                                          heard.push_back(payload);
                                          return on_message(payload);
                                        },
                                    .on_down =
                                        [this](const Error& why) {
                                          downs.push_back(why.message);
                                          on_down();
                                        }},
                   test_connector(),
                   queued_most);
  }
  void run_up(int count) {
    agent.run_linked(count);
    net::run_until(loop, [&] { return ups == count; });
  }

  net::TestCluster cluster{};
  net::Self self = net::self_of(cluster.issue(net::Role::kGateway, "g1"));
  boost::asio::io_context loop{1};
  TestCallee<std::variant<std::string>> agent{
      loop, net::self_of(cluster.issue(net::Role::kAgent, "h1")), decode_text};
  int ups = 0;
  std::vector<std::string> heard{};
  std::vector<std::string> downs{};
  std::function<void()> on_up = [this] { ++ups; };
  std::function<Result<void>(const std::string&)> on_message = [](const std::string&) {
    return Result<void>();
  };
  std::function<void()> on_down = [] {};
  std::optional<Callee> callee{};
};

TEST_F(CalleeTest, PassesMessagesBothWays) {
  link();
  EXPECT_FALSE(callee->send("too early"));
  run_up(1);
  EXPECT_TRUE(callee->send("hello"));
  EXPECT_EQ(agent.next<std::string>(), "hello");
  agent.say_bytes("you too");
  net::run_until(loop, [this] { return !heard.empty(); });
  EXPECT_EQ(heard, std::vector<std::string>{"you too"});
}

TEST_F(CalleeTest, EndsTheLinkOfOneThatMakesNoSenseAndLinksAgain) {
  link();
  run_up(1);
  on_message = [](const std::string& payload) -> Result<void> {
    return Error{.code = Code::kCorrupt, .message = "it says " + payload};
  };
  agent.say_bytes("nonsense");
  EXPECT_THAT(agent.end(), HasSubstr("it says nonsense"));
  run_up(2);
  ASSERT_EQ(downs.size(), 1U);
  EXPECT_THAT(downs[0], HasSubstr("it says nonsense"));
}

TEST_F(CalleeTest, EndsTheLinkOfOneThatTakesTooLittle) {
  link(1000);
  run_up(1);
  EXPECT_TRUE(callee->send(std::string(1000, 'x')));
  EXPECT_EQ(agent.next<std::string>().size(), 1000U);
  EXPECT_FALSE(callee->send(std::string(1001, 'x')));
  EXPECT_TRUE(downs.empty()) << "not from within the call";
  EXPECT_FALSE(callee->send("after that"));
  EXPECT_THAT(agent.end(), HasSubstr("it takes too little of what it is sent"));
  run_up(2);
  EXPECT_TRUE(callee->send("again"));
  EXPECT_EQ(agent.next<std::string>(), "again");
}

TEST_F(CalleeTest, MayBeDestroyedByWhomItTells) {
  on_up = [this] {
    ++ups;
    callee.reset();
  };
  link();
  net::run_until(loop, [this] { return ups == 1; });
  EXPECT_FALSE(callee.has_value());

  on_up = [this] { ++ups; };
  link();
  run_up(2);
  on_message = [this](const std::string& payload) -> Result<void> {
    callee.reset();
    return Error{.code = Code::kCorrupt, .message = payload};
  };
  agent.say_bytes("go");
  net::run_until(loop, [this] { return !callee.has_value(); });

  link();
  run_up(3);
  on_down = [this] { callee.reset(); };
  agent.cut();
  net::run_until(loop, [this] { return !callee.has_value(); });
}

}  // namespace
}  // namespace heddle::remote
