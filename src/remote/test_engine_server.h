#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/http_address.h"
#include "net/test_cluster.h"

namespace heddle::remote {

/// A server on loopback that says what a test has it say.
class TestEngineServer {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  explicit TestEngineServer(boost::asio::io_context& loop)
      : loop_(loop), acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}) {
    acceptor_.non_blocking(true);
  }

  [[nodiscard]] HttpAddress address() const {
    return {.host = "127.0.0.1", .port = acceptor_.local_endpoint().port(), .base_path = "/base"};
  }
  /// The next connection.
  Socket& accept() {
    net::run_until(loop_, [this] {
      boost::system::error_code none;
      Socket socket(loop_);
      acceptor_.accept(socket, none);
      if (!none) {
        socket.non_blocking(true);
        connections.push_back(std::make_unique<Socket>(std::move(socket)));
      }
      return !none;
    });
    return *connections.back();
  }
  void stop_listening() { acceptor_.close(); }

  std::vector<std::unique_ptr<Socket>> connections{};

 private:
  boost::asio::io_context& loop_;
  boost::asio::ip::tcp::acceptor acceptor_;
};

/// What has come from a non-blocking socket; `closed` becomes true when nothing more will.
template <class Socket>
std::string read_some(Socket& socket, bool& closed) {
  std::array<char, 65536> bytes{};
  boost::system::error_code failure;
  const std::size_t count = socket.read_some(boost::asio::buffer(bytes), failure);
  closed = closed || (failure && failure != boost::asio::error::would_block);
  return {bytes.data(), count};
}

}  // namespace heddle::remote
