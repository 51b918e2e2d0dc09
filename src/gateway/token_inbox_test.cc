#include "gateway/token_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/task.h"

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;
using testing::HasSubstr;

class TokenInboxTest : public testing::Test {
 protected:
  asio::io_context loop{};
  std::shared_ptr<TokenInbox> inbox = std::make_shared<TokenInbox>(loop, 4);
};

TEST_F(TokenInboxTest, TokensOfSeveralRequestsWaitInOrder) {
  const auto first = inbox->sink(0);
  const auto second = inbox->sink(1);
  first->on_tokens({{.token = 1}, {.token = 2}});
  second->on_tokens({{.token = 3}});
  const auto tokens = inbox->take_tokens();
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[1].event.token, 2);
  EXPECT_EQ(tokens[2].prompt, 1U);
  EXPECT_TRUE(inbox->take_tokens().empty());
}

TEST_F(TokenInboxTest, ABacklogThatGrowsTooLongIsAFailure) {
  const auto sink = inbox->sink(0);
  sink->on_tokens({{}, {}, {}, {}});
  EXPECT_FALSE(inbox->error());
  sink->on_tokens({{}});
  ASSERT_TRUE(inbox->error());
  EXPECT_THAT(inbox->error()->message, HasSubstr("too slowly"));
  sink->on_tokens({{}});
  EXPECT_EQ(inbox->take_tokens().size(), 4U) << "and it does not grow further";
}

TEST_F(TokenInboxTest, TheFirstErrorStays) {
  inbox->sink(0)->on_error({.code = Code::kUnavailable, .message = "one"});
  inbox->fail({.code = Code::kCancelled, .message = "two"});
  EXPECT_EQ(inbox->error()->message, "one");
}

TEST_F(TokenInboxTest, EveryEventWakes) {
  int woken = 0;
  const auto sink = inbox->sink(0);
  auto wait = [](TokenInbox& box, int& count) -> Task<void> {
    for (;;) {
      co_await box.signal.wait();
      ++count;
    }
  };
  spawn(loop, wait(*inbox, woken));
  loop.poll();
  EXPECT_EQ(woken, 0);
  sink->on_tokens({{}});
  loop.poll();
  EXPECT_EQ(woken, 1);
  sink->on_loading(1, 2);
  loop.poll();
  EXPECT_EQ(woken, 1) << "progress can wait for the next comment";
  sink->on_done();
  loop.poll();
  EXPECT_EQ(woken, 2);
}

}  // namespace
}  // namespace heddle::gateway
