#include "gateway/tls_front.h"

#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "gateway/http_server.h"
#include "gateway/signal.h"
#include "gateway/test_tls.h"

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;
using testing::AllOf;
using testing::HasSubstr;

std::string noise(std::size_t count) {
  Rng rng(count);
  std::string bytes(count, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(rng.next());
  }
  return bytes;
}

/// A server that speaks TLS. It answers with the body that it got; "/peer" with the client's
/// address; "/long" with a body of `long_bytes`; "/wait" once its client has gone.
class TlsFrontTest : public testing::Test {
 protected:
  ~TlsFrontTest() override {
    on_loop([this] { server.reset(); });
    work.reset();
    loop.stop();
    thread.join();
  }

  void start() {
    options.listen = {{.host = "127.0.0.1", .port = 0}};
    options.tls = made.write("a", 1);
    auto started = HttpServer::listen(
        loop,
        options,
        [](const HttpHead& /*head*/) { return Admission{.principal = Principal{}}; },
        [this](HttpExchange& http) { return answer(http); });
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(started).value();
    port = server->addresses()[0].port;
    EXPECT_EQ(server->addresses()[0].scheme, config::Scheme::kHttps);
  }

  Task<void> answer(HttpExchange& http) {
    const HttpRequest& request = http.request();
    HttpResponse response{.body = request.body, .content_type = "application/octet-stream"};
    if (request.path == "/wait") {
      Signal left(loop);
      http.on_gone([&left] { left.notify(); });
      waits.set_value();
      co_await left.wait();
      gone.set_value();
      co_return;
    }
    if (request.path == "/peer") {
      response.body = request.peer;
    }
    if (request.path == "/long") {
      response.body = noise(long_bytes);
    }
    (void)co_await http.respond(std::move(response));
  }

  /// Does something on the loop and waits until it is done.
  template <class Work>
  void on_loop(Work act) {
    std::promise<void> done;
    asio::post(loop, [&] {
      act();
      done.set_value();
    });
    done.get_future().wait();
  }

  static void expect_soon(std::promise<void>& promise) {
    EXPECT_EQ(promise.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }

  TestCertificates made{};
  HttpServer::Options options{};
  std::size_t long_bytes = 0;
  std::promise<void> waits{};
  std::promise<void> gone{};
  asio::io_context loop{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(loop);
  std::unique_ptr<HttpServer> server{};
  std::uint16_t port = 0;
  std::thread thread{[this] { loop.run(); }};
};

TEST_F(TlsFrontTest, RequestsComeThroughWithTheirClientsAddress) {
  start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsTestClient client(port, version);
    ASSERT_TRUE(client.shaken());
    EXPECT_EQ(client.call("GET", "/peer").body, "127.0.0.1");
    EXPECT_EQ(client.call("POST", "/", "body").body, "body") << "on the same connection";
  }
}

TEST_F(TlsFrontTest, BodiesOfAllSizesComeThroughWholeBothWays) {
  start();
  TlsTestClient client(port);
  for (const std::size_t size : {1U, 16383U, 16384U, 16385U, 65537U, 999'999U, 7'654'321U}) {
    const std::string body = noise(size);
    ASSERT_TRUE(client.send(TestClient::request("POST", "/", body)));
    EXPECT_TRUE(client.read().body == body) << size;
  }
}

TEST_F(TlsFrontTest, OldVersionsAreRefused) {
  start();
  EXPECT_FALSE(TlsTestClient(port, TLS1_1_VERSION).shaken());
  EXPECT_TRUE(TlsTestClient(port, TLS1_2_VERSION).shaken());
}

TEST_F(TlsFrontTest, WhoSpeaksPlainHttpIsToldThatThisIsTls) {
  start();
  for (const char* method : {"GET", "POST", "DELETE"}) {
    TestClient client(port);
    const TestResponse response = client.call(method, "/", std::string(100'000, 'x'));
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(response.body, AllOf(HasSubstr("this port speaks TLS"), testing::EndsWith("}}")));
  }
}

TEST_F(TlsFrontTest, AClientThatNeverEndsItsHandshakeIsGivenUp) {
  options.limits.header_timeout = std::chrono::milliseconds(20);
  start();
  TestClient silent(port);
  EXPECT_TRUE(silent.closed());
  TestClient begun(port);
  begun.send("\x16\x03\x01");
  EXPECT_TRUE(begun.closed());
}

TEST_F(TlsFrontTest, AHangUpCancelsTheRequest) {
  start();
  TlsTestClient client(port);
  client.send(TestClient::request("GET", "/wait"));
  expect_soon(waits);
  client.hang_up();
  expect_soon(gone);
}

TEST_F(TlsFrontTest, AGoodbyeIsAHangUp) {
  start();
  TlsTestClient client(port);
  client.send(TestClient::request("GET", "/wait"));
  expect_soon(waits);
  client.say_goodbye();
  expect_soon(gone);
}

TEST_F(TlsFrontTest, NoiseAfterTheHandshakeEndsTheConnectionAndItsRequest) {
  start();
  class Noisy : public TlsTestClient {
   public:
    using TlsTestClient::TlsTestClient;
    void make_noise() { (void)TestClient::write_some(noise(100)); }
  };
  Noisy client(port);
  client.send(TestClient::request("GET", "/wait"));
  expect_soon(waits);
  client.make_noise();
  expect_soon(gone);
  EXPECT_TRUE(client.closed());
}

TEST_F(TlsFrontTest, TheServersEndIsSaidToTheClient) {
  start();
  TlsTestClient client(port);
  EXPECT_EQ(client.call("GET", "/peer", "", "Connection: close\r\n").status, 200);
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.was_told_goodbye());
}

TEST_F(TlsFrontTest, ASlowClientGetsAllOfALongAnswerAndADrainWaitsForIt) {
  long_bytes = 20U << 20U;
  start();
  TlsTestClient client(port, TLS1_3_VERSION, 4096);
  client.send(TestClient::request("GET", "/long"));
  EXPECT_EQ(client.read_head().status, 200);
  std::promise<void> drained;
  on_loop([&] { server->drain([&] { drained.set_value(); }); });
  EXPECT_TRUE(client.read_bytes(long_bytes) == noise(long_bytes));
  EXPECT_TRUE(client.closed());
  expect_soon(drained);
}

TEST_F(TlsFrontTest, AClientThatTakesNothingIsGivenUp) {
  long_bytes = 20U << 20U;
  options.limits.stall_timeout = std::chrono::milliseconds(20);
  start();
  TlsTestClient client(port, TLS1_3_VERSION, 4096);
  client.send(TestClient::request("GET", "/long"));
  std::promise<void> empty;
  std::function<void()> look = [&] {
    if (server->connections() == 0) {
      empty.set_value();
    } else {
      asio::post(loop, look);
    }
  };
  TlsTestClient other(port);  // Once it is answered, the first is being answered, too.
  EXPECT_EQ(other.call("GET", "/peer").status, 200);
  other.hang_up();
  asio::post(loop, look);
  expect_soon(empty);
}

TEST_F(TlsFrontTest, ManyClientsAreServedAtOnce) {
  start();
  std::vector<std::unique_ptr<TlsTestClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<TlsTestClient>(port));
    ASSERT_TRUE(clients.back()->shaken()) << i;
  }
  for (int round = 0; round < 2; ++round) {
    for (auto& client : clients) {
      client->send(TestClient::request("POST", "/", noise(1000)));
    }
    for (auto& client : clients) {
      EXPECT_TRUE(client->read().body == noise(1000));
    }
  }
  std::size_t open = 0;
  on_loop([&] { open = server->connections(); });
  EXPECT_EQ(open, 200U) << "each client counts once";
}

TEST_F(TlsFrontTest, ASilentConnectionMakesRoomForAnother) {
  options.limits.connections = 1;
  start();
  TlsTestClient first(port);
  EXPECT_EQ(first.call("GET", "/peer").status, 200);
  TlsTestClient second(port);
  EXPECT_EQ(second.call("GET", "/peer").status, 200);
  EXPECT_EQ(first.call("GET", "/peer").status, 0) << "it was closed for it";
}

TEST_F(TlsFrontTest, ANewCertificateIsShownToNewClientsAndABrokenOneIsNot) {
  start();
  TlsTestClient before(port);
  EXPECT_EQ(before.serial(), 1);
  const config::TlsConfig next = made.write("b", 2);
  on_loop([&] { server->reload(next); });
  EXPECT_EQ(TlsTestClient(port).serial(), 2);
  EXPECT_EQ(before.call("GET", "/peer").status, 200) << "who was there stays";
  config::TlsConfig broken = next;
  broken.key = made.write("c", 3).key;
  on_loop([&] { server->reload(broken); });
  EXPECT_EQ(TlsTestClient(port).serial(), 2);
}

TEST_F(TlsFrontTest, AnAddressMayStayPlain) {
  options.listen = {};
  start();
  HttpServer::Options both = options;
  both.listen = {{.host = "127.0.0.1", .port = 0, .scheme = config::Scheme::kHttp},
                 {.host = "127.0.0.1", .port = 0}};
  on_loop([&] {
    auto started = HttpServer::listen(
        loop,
        both,
        [](const HttpHead& /*head*/) { return Admission{.principal = Principal{}}; },
        [this](HttpExchange& http) { return answer(http); });
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(started).value();
  });
  EXPECT_EQ(TestClient(server->addresses()[0].port).call("GET", "/peer").status, 200);
  EXPECT_EQ(TlsTestClient(server->addresses()[1].port).call("GET", "/peer").status, 200);
}

TEST(TlsFront, WithOneHandshakeTooManyTheOldestIsGivenUp) {
  TestCertificates made;
  asio::io_context loop{1};
  asio::ip::tcp::acceptor acceptor(loop,
                                   asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
  TlsFront front(loop,
                 TlsFiles::open(made.write("a", 1)).value(),
                 {.handshakes_max = 2},
                 [](TlsFront::Socket /*end*/, const std::string& /*peer*/) {},
                 {});
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<TestClient>(acceptor.local_endpoint().port()));
    front.accept(acceptor.accept());
    loop.poll();
  }
  EXPECT_TRUE(clients[0]->closed());
  EXPECT_EQ(front.alone(), 2U);
}

TEST(TlsFront, HasItsClientUntilAllThatTheServerLeftIsSent) {
  constexpr std::size_t kLeft = 50'000;
  TestCertificates made;
  asio::io_context loop{1};
  asio::ip::tcp::acceptor acceptor(loop,
                                   asio::ip::tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
  TlsFront* front = nullptr;
  bool taken = false;
  const auto take = [&](TlsFront::Socket end, const std::string& /*peer*/) {
    EXPECT_EQ(end.write_some(asio::buffer(noise(kLeft))), kLeft);
    end.close();
    EXPECT_FALSE(front->empty());
    taken = true;
  };
  TlsFront made_front(loop, TlsFiles::open(made.write("a", 1)).value(), {}, take, {});
  front = &made_front;
  std::string got;
  std::thread client([&] {
    TlsTestClient reader(acceptor.local_endpoint().port());
    got = reader.read_bytes(kLeft + 1);
  });
  TlsFront::Socket accepted = acceptor.accept();
  accepted.non_blocking(true);
  front->accept(std::move(accepted));
  while (!front->empty()) {
    loop.run_one();
  }
  client.join();
  EXPECT_TRUE(taken);
  EXPECT_TRUE(got == noise(kLeft));
}

}  // namespace
}  // namespace heddle::gateway
