#include "gateway/http_server.h"

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

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
  if (request.path == "/endless") {
    Result<void> sent = co_await http.begin_stream("text/plain");
    while (sent) {
      sent = co_await http.send_part(std::string(1U << 20U, 'x'));
    }
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
        [](const HttpHead& head) -> Admission {
          if (head.path == "/closed") {
            return {.principal = api::ApiError{.status = 401, .message = "no"},
                    .headers = {{"X-Of-All", "yes"}}};
          }
          return {.principal = Principal{}, .headers = {{"X-Of-All", "yes"}}};
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
  const TestResponse refused = client.read();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("x-of-all"), "yes");
  TestClient again(port);
  EXPECT_EQ(again.call("GET", "/closed").status, 401);
  const TestResponse taken = again.call("GET", "/open");
  EXPECT_EQ(taken.status, 200) << "on the same connection";
  EXPECT_EQ(taken.headers.at("x-of-all"), "yes");
}

TEST_F(HttpServerTest, NothingAfterARequestThatIsRefusedIsRead) {
  start();
  const std::string second = TestClient::request("GET", "/second");
  for (const auto& [first, status] : std::vector<std::pair<std::string, int>>{
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n", 501},
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            400},
           {"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\n\r\n", 400},
           {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505}}) {
    TestClient client(port);
    client.send(first + second);
    EXPECT_EQ(client.read().status, status) << first;
    EXPECT_TRUE(client.closed()) << first;
  }
}

TEST_F(HttpServerTest, SilentConnectionsMakeRoomForOthers) {
  options.limits.connections = 2;
  start();
  TestClient silent(port);
  TestClient kept(port);
  EXPECT_EQ(kept.call("GET", "/").status, 200);
  TestClient third(port);
  EXPECT_EQ(third.call("GET", "/").status, 200);
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(kept.call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, ABegunHeadIsSilent) {
  options.limits.connections = 1;
  start();
  TestClient slow(port);
  slow.send("GET / HT");
  EXPECT_EQ(TestClient(port).call("GET", "/").status, 200);
  EXPECT_TRUE(slow.closed());
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSoWhereAllAreBusy) {
  options.limits.connections = 2;
  options.limits.connections_per_client = 2;
  options.probes = {"/probe"};
  start();
  TestClient first(port);
  TestClient second(port);
  for (TestClient* client : {&first, &second}) {
    client->send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(client->read_head().status, 100);
  }
  TestClient third(port);
  const TestResponse refused = third.call("GET", "/");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(TestClient(port).call("GET", "/probe").status, 200);
  EXPECT_EQ(TestClient(port).call("POST", "/probe", "body").status, 503);
  first.send("ab");
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(third.connected(), true);
  EXPECT_EQ(TestClient(port).call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, AClientHasItsShareAtMost) {
  options.limits.connections = 4;
  start();
  std::vector<std::unique_ptr<TestClient>> busy;
  for (int i = 0; i < 3; ++i) {
    TestClient& client = *busy.emplace_back(std::make_unique<TestClient>(port));
    client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(client.read_head().status, 100);
  }
  TestClient fourth(port);
  const TestResponse refused = fourth.call("GET", "/");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("limits.connections_per_client is 3"));
  busy[0]->send("ab");
  EXPECT_EQ(busy[0]->read().status, 200);
  EXPECT_EQ(fourth.call("GET", "/").status, 200) << "on the same connection";
}

TEST_F(HttpServerTest, ABodyThatDripsIsGivenUp) {
  options.limits.header_timeout = std::chrono::milliseconds(50);
  start();
  TestClient client(port);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  while (client.send("1\r\nx\r\n")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // A byte at a time.
  }
  EXPECT_EQ(client.read().status, 0);
}

TEST_F(HttpServerTest, AnAnswerThatIsTakenTooSlowlyIsGivenUp) {
  options.limits.stall_timeout = std::chrono::milliseconds(200);
  start();
  TestClient client(port, /*receive_buffer=*/4096);
  client.send(TestClient::request("GET", "/endless"));
  EXPECT_EQ(client.read_head().status, 200);
  // Some is taken again and again, and never enough.
  std::future<void> given_up = gone.get_future();
  while (given_up.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    ASSERT_NE(client.read_some(1), 0U);
  }
}

TEST_F(HttpServerTest, DrainingTurnsAwayWhatHasNotComeWholeAndClosesTheRest) {
  start();
  TestClient silent(port);
  TestClient head(port);
  head.send("GET / HT");
  TestClient body(port);
  body.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(body.read_head().status, 100);
  TestClient waiting(port);
  waiting.send(TestClient::request("GET", "/wait"));
  EXPECT_EQ(TestClient(port).call("GET", "/").status, 200);
  std::promise<void> drained;
  asio::post(loop, [&] { server->drain([&] { drained.set_value(); }); });
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(head.closed());
  const TestResponse refused = body.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("shutting down"));
  std::future<void> end = drained.get_future();
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  asio::post(loop, [this] { server->close(); });
  EXPECT_EQ(end.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_TRUE(waiting.closed());
}

TEST_F(HttpServerTest, WhoComesWhileItDrainsIsToldSo) {
  start();
  TestClient waiting(port);
  waiting.send(TestClient::request("GET", "/wait"));
  EXPECT_EQ(TestClient(port).call("GET", "/").status, 200);
  std::promise<void> drained;
  asio::post(loop, [&] { server->drain([&] { drained.set_value(); }); });
  TestResponse probe = TestClient(port).call("GET", "/readyz");
  EXPECT_EQ(probe.status, 503);
  EXPECT_THAT(probe.body, HasSubstr("shutting down"));
  asio::post(loop, [this] { server->close(); });
  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(HttpServerTest, AnswersHaveADate) {
  start();
  EXPECT_THAT(TestClient(port).call("GET", "/").headers.at("date"), testing::EndsWith(" GMT"));
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
