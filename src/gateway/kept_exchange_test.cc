#include "gateway/kept_exchange.h"

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

class KeptExchangeTest : public testing::Test {
 protected:
  void run(Task<void> task) {
    spawn(loop_, std::move(task));
    loop_.run();
    loop_.restart();
  }

  boost::asio::io_context loop_{};
  KeptExchange exchange_{HttpRequest{.method = "POST", .path = "/x"}};
};

Task<void> answer_whole(HttpExchange& http) {
  HttpResponse response{.status = 404, .body = "no"};
  (void)co_await http.respond(std::move(response));
}

Task<void> answer_in_parts(HttpExchange& http, bool to_the_end) {
  StreamHead head{.status = 200};
  (void)co_await http.begin(std::move(head), "a");
  (void)co_await http.send_part("b");
  if (to_the_end) {
    (void)co_await http.end("c");
  }
}

Task<void> answer_too_much(HttpExchange& http, Result<void>& last) {
  StreamHead head{.status = 200};
  (void)co_await http.begin(std::move(head), std::string(KeptExchange::kBodyMax, 'x'));
  last = co_await http.send_part("x");
}

TEST_F(KeptExchangeTest, AnAnswerIsKeptWhole) {
  run(answer_whole(exchange_));
  const std::optional<KeptAnswer> answer = exchange_.take();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "no");
}

TEST_F(KeptExchangeTest, PartsAreJoined) {
  run(answer_in_parts(exchange_, true));
  const std::optional<KeptAnswer> answer = exchange_.take();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "abc");
}

TEST_F(KeptExchangeTest, AnAnswerThatWasCutIsNone) {
  run(answer_in_parts(exchange_, false));
  EXPECT_FALSE(exchange_.take());
}

TEST_F(KeptExchangeTest, CallingBackIsTold) {
  int told = 0;
  exchange_.on_gone([&told] { ++told; });
  exchange_.call_back();
  exchange_.call_back();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(exchange_.gone());
  run(answer_whole(exchange_));
  EXPECT_FALSE(exchange_.take());
}

TEST_F(KeptExchangeTest, AnAnswerThatIsTooLargeBecomesAnError) {
  Result<void> last;
  run(answer_too_much(exchange_, last));
  EXPECT_FALSE(last);
  const std::optional<KeptAnswer> answer = exchange_.take();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 502);
}

}  // namespace
}  // namespace heddle::gateway
