#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/time.h"

namespace heddle::bench {

/// An API on a port of its own, on a thread of its own, that streams tokens at a steady pace.
class TestEndpoint {
 public:
  struct Options {
    Duration pace{};          ///< Between tokens; 0: none.
    std::int64_t tokens = 5;  ///< Of each answer.
    int status = 200;         ///< Of streams.
    bool keep_alive = true;
  };

  explicit TestEndpoint(Options options) : options_(options) {
    port_ = acceptor_.local_endpoint().port();
    boost::asio::co_spawn(loop_, accept(), [](const std::exception_ptr&) {});
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~TestEndpoint() {
    loop_.stop();
    thread_.join();
  }
  TestEndpoint(const TestEndpoint&) = delete;
  TestEndpoint& operator=(const TestEndpoint&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::int64_t streams() const { return streams_; }
  /// Requests that were answered in one piece.
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  /// Tokens in prompts that were lists of them.
  [[nodiscard]] std::int64_t listed() const { return listed_; }
  /// Requests that wanted to be answered with token 42.
  [[nodiscard]] std::int64_t biased() const { return biased_; }
  /// Streams at once, at most.
  [[nodiscard]] std::int64_t most_at_once() const { return most_; }
  /// How much later than its time a token was sent, at most.
  [[nodiscard]] Duration latest_token() const { return latest_; }
  [[nodiscard]] std::int64_t connections() const { return connections_; }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  static constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

  boost::asio::awaitable<void> accept() {
    for (;;) {
      auto [failure, socket] = co_await acceptor_.async_accept(kAwait);
      if (failure) {
        co_return;
      }
      ++connections_;
      socket.set_option(boost::asio::ip::tcp::no_delay(true));
      boost::asio::co_spawn(loop_, serve(std::move(socket)), [](const std::exception_ptr&) {});
    }
  }

  boost::asio::awaitable<void> serve(Socket socket) {
    namespace http = boost::beast::http;
    boost::beast::flat_buffer buffer;
    do {
      http::request<http::string_body> request;
      const auto [failure, bytes] = co_await http::async_read(socket, buffer, request, kAwait);
      if (failure) {
        co_return;
      }
      listed_ += tokens_listed(request.body());
      biased_ += request.body().find(R"("logit_bias":{"42":100})") != std::string::npos ? 1 : 0;
      const bool stream = request.body().find("\"stream\":true") != std::string::npos;
      std::string answer;
      if (stream && options_.status == 200) {
        const bool sent = co_await send_stream(socket);
        if (!sent) {
          co_return;
        }
        continue;
      }
      ++samples_;
      // A word is a token here, and a template adds three.
      const auto words = std::count(request.body().begin(), request.body().end(), ' ') + 1;
      answer = R"({"usage":{"prompt_tokens":)" + std::to_string(words + 3) + "}}";
      int status = 200;
      if (stream) {
        answer = R"({"error":{"message":"out of order"}})";
        status = options_.status;
      }
      const std::string text = "HTTP/1.1 " + std::to_string(status) +
                               " X\r\nContent-Length: " + std::to_string(answer.size()) +
                               "\r\n\r\n" + answer;
      co_await boost::asio::async_write(socket, boost::asio::buffer(text), kAwait);
    } while (options_.keep_alive);
  }

  boost::asio::awaitable<bool> send_stream(Socket& socket) {
    ++streams_;
    most_ = std::max<std::int64_t>(most_, ++running_);
    boost::asio::steady_timer timer(loop_);
    const auto start = std::chrono::steady_clock::now();
    std::string text =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    bool sent = true;
    for (std::int64_t i = 1; sent && i <= options_.tokens; ++i) {
      text += chunk("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n");
      if (options_.pace > Duration{}) {
        timer.expires_at(start + options_.pace * i);
        co_await timer.async_wait(kAwait);
        const Duration late = std::chrono::steady_clock::now() - (start + options_.pace * i);
        latest_ = std::max(latest_.load(), late);
      }
      const auto [gone, count] =
          co_await boost::asio::async_write(socket, boost::asio::buffer(text), kAwait);
      sent = !gone;
      text.clear();
    }
    text = chunk(R"(data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":)" +
                 std::to_string(options_.tokens) + "}}\n\ndata: [DONE]\n\n") +
           "0\r\n\r\n";
    if (sent) {
      const auto [gone, count] =
          co_await boost::asio::async_write(socket, boost::asio::buffer(text), kAwait);
      sent = !gone;
    }
    --running_;
    co_return sent&& options_.keep_alive;
  }

  static std::int64_t tokens_listed(const std::string& body) {
    constexpr std::string_view kList = R"("prompt":[)";
    const std::size_t at = body.find(kList);
    if (at == std::string::npos) {
      return 0;
    }
    const auto begin = body.begin() + static_cast<std::ptrdiff_t>(at + kList.size());
    return std::count(begin, std::find(begin, body.end(), ']'), ',') + 1;
  }

  static std::string chunk(const std::string& data) {
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", data.size());
    return size + data + "\r\n";
  }

  Options options_;
  boost::asio::io_context loop_{1};
  boost::asio::ip::tcp::acceptor acceptor_{loop_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::uint16_t port_ = 0;
  std::atomic<std::int64_t> streams_{0};
  std::atomic<std::int64_t> samples_{0};
  std::atomic<std::int64_t> listed_{0};
  std::atomic<std::int64_t> biased_{0};
  std::atomic<std::int64_t> running_{0};
  std::atomic<std::int64_t> most_{0};
  std::atomic<std::int64_t> connections_{0};
  std::atomic<Duration> latest_{Duration{}};
  std::thread thread_{};
};

}  // namespace heddle::bench
