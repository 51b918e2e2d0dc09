#pragma once

#include <coroutine>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "gateway/task.h"

namespace heddle::gateway {

/// A socket and one wait for something to read from it, which goes on while nobody asks: a peer
/// that hangs up is heard of at once, and whoever asks next finds the wait begun. So no read finds
/// nothing, and each time that something comes costs one wait. Loop thread.
class WatchedSocket : public std::enable_shared_from_this<WatchedSocket> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  /// `unexpected` is told when something has come, or the peer has hung up, while nobody waits for
  /// it; then nothing is watched until watch() is called again. The socket does not block.
  explicit WatchedSocket(Socket socket, std::function<void()> unexpected = {})
      : socket_(std::move(socket)), unexpected_(std::move(unexpected)) {}
  WatchedSocket(const WatchedSocket&) = delete;
  WatchedSocket& operator=(const WatchedSocket&) = delete;

  [[nodiscard]] Socket& socket() { return socket_; }

  /// Begins to wait, unless that is under way.
  void watch() {
    if (!watching_) {
      watching_ = true;
      socket_.async_wait(Socket::wait_read, Wait(shared_from_this()));
    }
  }

  /// Whether something has come, or the peer has hung up, that nobody has waited for since.
  [[nodiscard]] bool stirred() const { return stirred_; }

  /// What readable() gives, to be awaited.
  class Readable {
   public:
    [[nodiscard]] bool await_ready() const { return socket_.stirred_; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> waiter) {
      socket_.reader_ = Continuation(waiter);
      socket_.watch();
    }
    bool await_resume() { return std::exchange(socket_.stirred_, false); }

   private:
    friend class WatchedSocket;
    explicit Readable(WatchedSocket& socket) : socket_(socket) {}
    WatchedSocket& socket_;
  };
  /// Awaited, waits until something can be read, or one of the two has hung up; false when it was
  /// woken before. One coroutine at a time.
  [[nodiscard]] Readable readable() { return Readable(*this); }
  /// Lets whoever waits go on, at once.
  void wake() {
    if (reader_) {
      reader_.resume();
    }
  }
  /// Hangs up. Whoever waits goes on when the loop runs next; where nobody does, but the socket is
  /// watched, that is unexpected.
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  /// Hangs up, and tells nobody: for the end of whoever was told.
  void leave() {
    unexpected_ = nullptr;
    close();
  }

 private:
  /// Asio's handler. When it is dropped, as by a loop that ends, so is who waits.
  class Wait {
   public:
    explicit Wait(std::shared_ptr<WatchedSocket> socket) : socket_(std::move(socket)) {}
    Wait(Wait&&) = default;
    Wait& operator=(Wait&&) = delete;
    ~Wait() {
      if (socket_) {
        const Continuation dropped = std::move(socket_->reader_);
      }
    }
    void operator()(const boost::system::error_code& /*failure*/) {
      const std::shared_ptr<WatchedSocket> socket = std::move(socket_);
      socket->watching_ = false;
      socket->stirred_ = true;
      if (socket->reader_) {
        socket->reader_.resume();
      } else if (socket->unexpected_) {
        socket->stirred_ = false;
        socket->unexpected_();
      }
    }

   private:
    std::shared_ptr<WatchedSocket> socket_;
  };

  Socket socket_;
  std::function<void()> unexpected_;
  Continuation reader_{};
  bool watching_ = false;
  bool stirred_ = false;
};

}  // namespace heddle::gateway
