#include "lab/watch.h"

#include <atomic>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// Answers each request with how many there were so far, or with an error to all but GET.
class CountingServer {
 public:
  CountingServer() : thread_([this] { run(); }) {}
  ~CountingServer() {
    ended_ = true;
    asio::ip::tcp::socket last(loop_);
    boost::system::error_code ignored;
    last.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  CountingServer(const CountingServer&) = delete;
  CountingServer& operator=(const CountingServer&) = delete;

  [[nodiscard]] HttpAddress endpoint() const { return {.port = acceptor_.local_endpoint().port()}; }

 private:
  void run() {
    namespace http = boost::beast::http;
    for (;;) {
      asio::ip::tcp::socket socket(loop_);
      acceptor_.accept(socket);
      if (ended_) {
        return;
      }
      boost::beast::flat_buffer buffer;
      http::request<http::string_body> request;
      boost::system::error_code failure;
      http::read(socket, buffer, request, failure);
      const bool get = request.method() == http::verb::get && request.target() == "/metrics";
      const std::string body = get ? "asked_total " + std::to_string(++asked_) + "\n" : "not here";
      const std::string text =
          std::string("HTTP/1.1 ") + (get ? "200" : "404") +
          " X\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
          body;
      asio::write(socket, asio::buffer(text), failure);
    }
  }

  asio::io_context loop_{1};
  asio::ip::tcp::acceptor acceptor_{loop_, {asio::ip::address_v4::loopback(), 0}};
  std::atomic<bool> ended_ = false;
  int asked_ = 0;
  std::thread thread_;
};

TEST(Watch, AsksAgainAndAgainAndOnceAtTheEnd) {
  CountingServer server;
  Watch watch(server.endpoint(), 1ms);
  const auto asked = [&] {
    return Counters::parse(ask(server.endpoint(), "/metrics", "", 10s).value())
        .total("asked_total");
  };
  // Until the watch has asked twice and more, beside what is asked here.
  for (double own = 1; asked() < own + 3; ++own) {
  }
  const std::vector<Sample> samples = watch.finish();
  ASSERT_GE(samples.size(), 2U);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    EXPECT_GT(samples[i].at, samples[i - 1].at);
    EXPECT_GT(samples[i].counters.total("asked_total"),
              samples[i - 1].counters.total("asked_total"));
  }
  EXPECT_EQ(asked(), samples.back().counters.total("asked_total") + 1)
      << "the last one is of the end";
}

TEST(Watch, RefusalsAreToldInTheServersWords) {
  CountingServer server;
  const Result<std::string> answer = ask(server.endpoint(), "/tokenize", "{}", 10s);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(answer.error().message, testing::HasSubstr("/tokenize: status 404: not here"));
}

}  // namespace
}  // namespace heddle::lab
