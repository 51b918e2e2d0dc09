#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "base/http_address.h"
#include "base/time.h"
#include "gateway/deadline.h"
#include "gateway/watched_socket.h"
#include "net/carried_connection.h"

namespace heddle::gateway {

/// A connection to an engine, and its one deadline, which closes the socket or ends the patience of
/// who reads.
class UpstreamConnection {
 public:
  explicit UpstreamConnection(boost::asio::io_context& loop)
      : loop_(loop), connecting_(loop), deadline_(loop, [this] { give_up(); }) {}
  ~UpstreamConnection() { close(); }
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  /// To be connected, which connected() is told of.
  [[nodiscard]] boost::asio::ip::tcp::socket& connecting() { return connecting_; }
  void connected(const HttpAddress& where) {
    boost::system::error_code ignored;
    connecting_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
    socket_ = std::make_shared<WatchedSocket>(loop_, std::move(connecting_));
    address = where;
  }
  /// By way of the engine's host.
  void connected(net::CarriedConnection carried) {
    socket_ = std::make_shared<WatchedSocket>(loop_, std::move(carried.socket));
    address = std::move(carried.address);
    carried_end_ = std::move(carried.end);
    carried_idle_ = std::move(carried.idle);
  }
  /// Why a connection that is carried has broken, if it has.
  [[nodiscard]] const net::CarriedEnd* carried_end() const {
    return carried_end_ && *carried_end_ ? &**carried_end_ : nullptr;
  }
  /// Not before connected().
  [[nodiscard]] WatchedSocket& socket() { return *socket_; }
  void close() {
    deadline_.clear();
    if (socket_) {
      socket_->close();
    }
    boost::system::error_code ignored;
    connecting_.close(ignored);
  }
  void close_after(Duration patience) {
    only_wakes_ = false;
    deadline_.set(patience);
  }
  /// Takes the deadline back.
  void settle() { deadline_.clear(); }

  /// Awaited, waits for something to read; false when the patience has ended.
  WatchedSocket::Readable readable(Duration patience) {
    only_wakes_ = true;
    deadline_.set(patience);
    return socket_->readable();
  }
  /// Nobody uses it for now: has the loop tell when the engine hangs up.
  void rest() {
    socket_->watch();
    if (carried_idle_) {
      carried_idle_();
    }
  }
  /// Whether the engine has hung up, or sent what nobody asked for, as far as the loop knows.
  [[nodiscard]] bool is_stale() const { return socket_->stirred(); }

  HttpAddress address{};  ///< Of the engine, from connected() on.
  boost::beast::flat_buffer
      buffer{};  ///< Read, but not parsed: what comes next is needed for that.
  Instant idle_since{};

 private:
  void give_up() {
    if (only_wakes_) {
      socket_->wake();
    } else {
      close();
    }
  }

  boost::asio::io_context& loop_;
  boost::asio::ip::tcp::socket connecting_;
  std::shared_ptr<WatchedSocket> socket_{};
  std::shared_ptr<const std::optional<net::CarriedEnd>> carried_end_{};
  std::function<void()> carried_idle_{};
  Deadline deadline_;
  bool only_wakes_ = false;
};

}  // namespace heddle::gateway
