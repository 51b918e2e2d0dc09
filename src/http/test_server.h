#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/check.h"
#include "base/http_address.h"

namespace heddle::http {

/// Runs the loop until the coroutine has ended.
inline void run(boost::asio::io_context& loop, boost::asio::awaitable<void> work) {
  bool over = false;
  boost::asio::co_spawn(loop, std::move(work), [&](std::exception_ptr error) {
    HEDDLE_CHECK(error == nullptr);
    over = true;
  });
  while (!over) {
    loop.restart();
    loop.run_one();
  }
}

template <class T>
boost::asio::awaitable<void> keep(boost::asio::awaitable<T> work, std::optional<T>& result) {
  result = co_await std::move(work);
}

/// Likewise, and returns what it returned.
template <class T>
T run(boost::asio::io_context& loop, boost::asio::awaitable<T> work) {
  std::optional<T> result;
  run(loop, keep(std::move(work), result));
  return std::move(*result);
}

/// A port that nobody listened at a moment ago.
inline std::uint16_t free_port() {
  boost::asio::io_context loop;
  const boost::asio::ip::tcp::acceptor acceptor(loop, {boost::asio::ip::address_v4::loopback(), 0});
  return acceptor.local_endpoint().port();
}

/// An answer with a body of a known length.
inline std::string answer_of(const std::string& body, const std::string& head = "HTTP/1.1 200 OK") {
  return head + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// Says to whatever comes what it was given to say, one answer after the other, whoever asks; ""
/// says nothing. It hangs up when it has said all of a connection's answers.
class TestServer {
 public:
  /// @param each  Answers on one connection.
  TestServer(boost::asio::io_context& loop, std::vector<std::string> answers, std::size_t each = 1)
      : acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}),
        answers_(std::move(answers)),
        each_(each) {
    boost::asio::co_spawn(loop, accept(), [](const std::exception_ptr&) {});
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  [[nodiscard]] HttpAddress address() const {
    return {.port = acceptor_.local_endpoint().port(), .base_path = "/base"};
  }

  std::vector<std::string> heard{};  ///< Each request.
  int connections = 0;

 private:
  using Socket = boost::asio::ip::tcp::socket;
  static constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

  /// Whether the body has come, as far as the head says how long it is.
  static bool is_whole(const std::string& request) {
    constexpr std::string_view kLength = "Content-Length: ";
    const std::size_t head = request.find("\r\n\r\n");
    const std::size_t length = request.find(kLength);
    if (head == std::string::npos || length > head) {
      return head != std::string::npos;
    }
    return request.size() - head - 4 >= std::stoul(request.substr(length + kLength.size()));
  }

  boost::asio::awaitable<void> accept() {
    for (;;) {
      auto [failure, socket] = co_await acceptor_.async_accept(kAwait);
      if (failure) {
        co_return;
      }
      ++connections;
      co_await serve(std::move(socket));
    }
  }

  boost::asio::awaitable<void> serve(Socket socket) {
    std::array<char, 4096> buffer{};
    for (std::size_t i = 0; i < each_; ++i) {
      std::string request;
      while (!is_whole(request)) {
        const auto [gone, got] =
            co_await socket.async_read_some(boost::asio::buffer(buffer), kAwait);
        if (gone) {
          co_return;
        }
        request.append(buffer.data(), got);
      }
      heard.push_back(std::move(request));
      HEDDLE_CHECK(heard.size() <= answers_.size());
      const std::string& answer = answers_[heard.size() - 1];
      if (answer.empty()) {
        silent_.push_back(std::move(socket));
        co_return;
      }
      co_await boost::asio::async_write(socket, boost::asio::buffer(answer), kAwait);
    }
  }

  boost::asio::ip::tcp::acceptor acceptor_;
  std::vector<std::string> answers_;
  std::size_t each_;
  std::vector<Socket> silent_{};
};

}  // namespace heddle::http
