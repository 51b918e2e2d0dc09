#include "http/blocking_client.h"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "http/test_server.h"

namespace heddle::http {
namespace {

using namespace std::chrono_literals;

/// A server on a thread of its own.
class Served {
 public:
  explicit Served(std::vector<std::string> answers, std::size_t each = 1)
      : server_(loop_, std::move(answers), each), thread_([this] { loop_.run(); }) {}
  ~Served() {
    loop_.stop();
    thread_.join();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  [[nodiscard]] HttpAddress address() const { return server_.address(); }

 private:
  boost::asio::io_context loop_{1};
  TestServer server_;
  std::thread thread_;
};

TEST(BlockingClient, WaitsForEachAnswer) {
  const Served served({answer_of("a"), answer_of("b", "HTTP/1.1 404 X")});
  BlockingClient client(served.address());
  EXPECT_EQ(client.exchange({.patience = 1min})->body, "a");
  const Result<Reply> second = client.exchange({.patience = 1min});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->status, 404);
  EXPECT_EQ(second->body, "b");
}

TEST(BlockingClient, WhereNobodyListensIsSaid) {
  BlockingClient client({.port = free_port()});
  const Result<Reply> answer = client.exchange({.patience = 1min});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
}

TEST(BlockingClient, AnInterruptEndsARequest) {
  const std::string begun = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart";
  const Served served({begun, answer_of("next")}, 2);
  BlockingClient client(served.address());
  client.let_interrupt();
  const Result<Reply> cut =
      client.exchange({.patience = 1min, .on_part = [](std::string_view) { std::raise(SIGINT); }});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kCancelled);
  EXPECT_EQ(client.exchange({.patience = 1min})->body, "next") << "and no more than that one";
}

TEST(BlockingClient, PollsWhileARequestRuns) {
  const Served served({"", answer_of("1"), answer_of("2"), answer_of("3")});
  BlockingClient client(served.address());
  client.let_interrupt();
  std::string polled;
  client.poll_meanwhile({.request = {.target = "/progress", .patience = 1min},
                         .interval = 1ms,
                         .on_reply = [&](const Result<Reply>& reply) {
                           polled += reply ? reply->body : reply.error().message;
                           if (polled.size() == 3) {
                             std::raise(SIGINT);
                           }
                         }});
  const Result<Reply> slow = client.exchange({.target = "/slow", .patience = 1min});
  EXPECT_EQ(slow.error().code, Code::kCancelled);
  EXPECT_EQ(polled, "123");
}

}  // namespace
}  // namespace heddle::http
