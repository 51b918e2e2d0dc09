#include "external/http_call.h"

#include <array>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "external/test_engine.h"

namespace heddle::external {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Takes one connection, keeps what it is told and says what it was given to say.
class Server {
 public:
  explicit Server(asio::io_context& loop, std::string answer)
      : acceptor_(loop, {asio::ip::address_v4::loopback(), 0}), answer_(std::move(answer)) {
    asio::co_spawn(loop, serve(), [](std::exception_ptr) {});
  }
  [[nodiscard]] core::EngineAddress address() const {
    return {.host = "127.0.0.1", .port = acceptor_.local_endpoint().port(), .base_path = "/base"};
  }
  std::string heard{};

 private:
  asio::awaitable<void> serve() {
    tcp::socket socket = co_await acceptor_.async_accept(asio::use_awaitable);
    std::array<char, 4096> buffer{};
    const std::size_t got =
        co_await socket.async_read_some(asio::buffer(buffer), asio::use_awaitable);
    heard.assign(buffer.data(), got);
    if (answer_.empty()) {
      silent_ = std::make_unique<tcp::socket>(std::move(socket));
      co_return;
    }
    co_await asio::async_write(socket, asio::buffer(answer_), asio::use_awaitable);
  }

  tcp::acceptor acceptor_;
  std::string answer_;
  std::unique_ptr<tcp::socket> silent_{};
};

TEST(HttpCall, SaysWhatItIsToldAndReturnsTheAnswer) {
  asio::io_context loop(1);
  Server server(loop, "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull");
  const auto answer =
      run(loop,
          http_call(server.address(), {.method = "POST", .target = "/x?a=1", .body = "{}"}, 1min));
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, "full");
  EXPECT_EQ(server.heard.find("POST /base/x?a=1 HTTP/1.1\r\n"), 0U) << server.heard;
  EXPECT_NE(server.heard.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_NE(server.heard.find("\r\n\r\n{}"), std::string::npos);
}

TEST(HttpCall, TellsTheKindsOfFailureApart) {
  asio::io_context loop(1);
  const core::EngineAddress nobody{.host = "127.0.0.1", .port = free_port()};
  const auto refused = run(loop, http_call(nobody, {}, 1min));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().message.find(std::to_string(nobody.port)), std::string::npos);

  Server silent(loop, "");
  const auto late = run(loop, http_call(silent.address(), {}, 50ms));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);

  Server cut(loop, "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nless");
  EXPECT_FALSE(run(loop, http_call(cut.address(), {}, 1min)).has_value());
  Server noise(loop, "SSH-2.0-x\r\n\r\n");
  EXPECT_FALSE(run(loop, http_call(noise.address(), {}, 1min)).has_value());
}

TEST(HttpCall, FollowsNoRedirect) {
  asio::io_context loop(1);
  Server other(loop, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  const std::string place = "http://127.0.0.1:" + std::to_string(other.address().port) + "/";
  Server server(loop, "HTTP/1.1 302 Found\r\nLocation: " + place + "\r\nContent-Length: 0\r\n\r\n");
  const auto answer = run(loop, http_call(server.address(), {}, 1min));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 302);
  EXPECT_EQ(other.heard, "");
}

TEST(HttpCall, FindsHostsByName) {
  asio::io_context loop(1);
  Server server(loop, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  core::EngineAddress address = server.address();
  address.host = "localhost";
  EXPECT_TRUE(run(loop, http_call(address, {}, 1min)).has_value());
}

TEST(PortOpen, IsWhetherSomebodyListens) {
  asio::io_context loop(1);
  const Server server(loop, "x");
  EXPECT_TRUE(run(loop, port_open(server.address(), 1min)));
  EXPECT_FALSE(run(loop, port_open({.host = "127.0.0.1", .port = free_port()}, 1min)));
}

}  // namespace
}  // namespace heddle::external
