#include "gateway/http_server.h"

#include <chrono>
#include <future>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/signal.h"
#include "gateway/task.h"
#include "gateway/test_client.h"

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;
using testing::HasSubstr;

/// Answers with the method, path and body; "/wait" answers when its client has gone.
Task<void> echo(HttpExchange& http, asio::io_context& loop, std::promise<void>& gone) {
  const HttpRequest& request = http.request();
  if (request.path == "/wait") {
    Signal left(loop);
    http.on_gone([&left] { left.notify(); });
    co_await left.wait();
    gone.set_value();
    co_return;
  }
  HttpResponse response{.body = request.method + " " + request.path + "?" + request.query + " " +
                                std::to_string(request.body.size()) + request.body.substr(0, 10),
                        .content_type = "text/plain"};
  (void)co_await http.respond(std::move(response));
}

class HttpServerTest : public testing::Test {
 protected:
  ~HttpServerTest() override {
    work.reset();
    loop.stop();
    if (thread.joinable()) {
      thread.join();
    }
  }

  void start() {
    options.listen = {{.host = "127.0.0.1", .port = 0}};
    auto started = HttpServer::listen(
        loop,
        options,
        [](const HttpHead& head) -> api::Parsed<Guest> {
          if (head.path == "/closed") {
            return api::ApiError{.status = 401, .message = "no", .type = "authentication_error"};
          }
          return Guest{};
        },
        [this](HttpExchange& http) { return echo(http, loop, gone); });
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(started).value();
    port = server->addresses()[0].port;
    thread = std::thread([this] { loop.run(); });
  }

  HttpServer::Options options{};
  std::promise<void> gone{};
  asio::io_context loop{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(loop);
  std::unique_ptr<HttpServer> server{};
  std::uint16_t port = 0;
  std::thread thread{};
};

TEST_F(HttpServerTest, KeepsConnectionsAndAnswersPipelinedRequestsInOrder) {
  start();
  TestClient client(port);
  EXPECT_EQ(client.call("GET", "/a?x=1").body, "GET /a?x=1 0");
  client.send(TestClient::request("POST", "/b", "body") + TestClient::request("GET", "/c") +
              TestClient::request("GET", "/d"));
  EXPECT_EQ(client.read().body, "POST /b? 4body");
  EXPECT_EQ(client.read().body, "GET /c? 0");
  EXPECT_EQ(client.read().body, "GET /d? 0");
}

TEST_F(HttpServerTest, AnswersMorePipelinedRequestsThanItReadsAhead) {
  start();
  TestClient client(port);
  std::string all;
  for (int i = 0; i < 4000; ++i) {
    all += TestClient::request("GET", "/" + std::to_string(i));
  }
  std::thread sender([&] { EXPECT_TRUE(client.send(all)); });
  for (int i = 0; i < 4000; ++i) {
    ASSERT_EQ(client.read().body, "GET /" + std::to_string(i) + "? 0");
  }
  sender.join();
}

TEST_F(HttpServerTest, AServerThatEndsTellsWhoAnswersThatItsClientIsGone) {
  start();
  TestClient client(port);
  client.send(TestClient::request("GET", "/wait"));
  TestClient other(port);  // Once it is answered, the first is being answered, too.
  EXPECT_EQ(other.call("GET", "/").status, 200);
  asio::post(loop, [this] { server.reset(); });
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(HttpServerTest, ARequestMayArriveByteByByte) {
  start();
  TestClient client(port);
  for (const char c : TestClient::request("POST", "/slow", "xyz")) {
    ASSERT_TRUE(client.send({&c, 1}));
  }
  EXPECT_EQ(client.read().body, "POST /slow? 3xyz");
}

TEST_F(HttpServerTest, ConnectionCloseIsHonoured) {
  start();
  TestClient client(port);
  EXPECT_EQ(client.call("GET", "/", "", "Connection: close\r\n").status, 200);
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, RequestIdsOfClientsAreKeptWhereTheyAreSane) {
  start();
  EXPECT_EQ(TestClient(port).call("GET", "/", "", "X-Request-Id: a-1\r\n").headers["x-request-id"],
            "a-1");
  for (const std::string& id : {std::string("a b"), std::string("<x>"), std::string(200, 'a')}) {
    const auto headers =
        TestClient(port).call("GET", "/", "", "X-Request-Id: " + id + "\r\n").headers;
    EXPECT_EQ(headers.at("x-request-id").size(), 15U);
  }
}

TEST_F(HttpServerTest, ABodyBeyondTheLimitIsRefusedBeforeItIsRead) {
  options.limits.body = 1U << 20U;
  start();
  TestClient client(port);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n" +
              std::string(65536, ' '));
  const TestResponse response = client.read();
  EXPECT_EQ(response.status, 413);
  EXPECT_THAT(response.body, HasSubstr("limits.body"));
  TestClient chunked(port);
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
               std::string(0x200000, ' '));
  EXPECT_EQ(chunked.read().status, 413);
}

TEST_F(HttpServerTest, ABodyOfTheLimitIsTaken) {
  options.limits.body = 1U << 20U;
  start();
  const TestResponse response = TestClient(port).call("POST", "/", std::string(1U << 20U, 'x'));
  EXPECT_EQ(response.body, "POST /? 1048576xxxxxxxxxx");
}

TEST_F(HttpServerTest, AHeadBeyondTheLimitIsRefused) {
  start();
  TestClient client(port);
  client.send("GET / HTTP/1.1\r\nX: " + std::string(1'000'000, 'a'));
  EXPECT_EQ(client.read().status, 431);
}

TEST_F(HttpServerTest, WhatIsNotHttpGetsOneErrorAndNoMore) {
  start();
  for (const std::string& nonsense : {std::string("hello there\r\n\r\n"),
                                      std::string("GET\r\n\r\n"),
                                      std::string("GET / HTTP/9.9\r\n\r\n"),
                                      std::string("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
                                      std::string("POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"),
                                      std::string("GET / HTTP/1.1\r\nBad Name: x\r\n\r\n")}) {
    TestClient client(port);
    client.send(nonsense);
    EXPECT_EQ(client.read().status, 400) << nonsense;
    EXPECT_TRUE(client.closed()) << nonsense;
  }
  EXPECT_EQ(TestClient(port).call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  start();
  TestClient client(port);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send("ab");
  EXPECT_EQ(client.read().body, "POST /? 2ab");
}

TEST_F(HttpServerTest, TheGatekeeperSpeaksBeforeTheBodyIsRead) {
  start();
  TestClient client(port);
  client.send("POST /closed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(client.read().status, 401);
  TestClient again(port);
  EXPECT_EQ(again.call("GET", "/closed").status, 401);
  EXPECT_EQ(again.call("GET", "/open").status, 200) << "on the same connection";
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSo) {
  options.limits.connections = 2;
  start();
  TestClient first(port);
  TestClient second(port);
  EXPECT_EQ(first.call("GET", "/").status, 200);
  EXPECT_EQ(second.call("GET", "/").status, 200);
  TestClient third(port);
  const TestResponse refused = third.call("GET", "/");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(first.call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, AHangUpIsNoticedWhileTheAnswerIsWaitedFor) {
  start();
  TestClient client(port);
  client.send(TestClient::request("GET", "/wait"));
  client.hang_up();
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(HttpServerTest, SilentClientsAreGivenUp) {
  options.limits.idle_timeout = std::chrono::milliseconds(20);
  options.limits.header_timeout = std::chrono::milliseconds(20);
  start();
  TestClient silent(port);
  EXPECT_TRUE(silent.closed());
  TestClient half(port);
  half.send("GET / HTT");
  EXPECT_TRUE(half.closed());
}

}  // namespace
}  // namespace heddle::gateway
