#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/buffers_suffix.hpp>
#include <boost/system/error_code.hpp>

#include "base/descriptor.h"
#include "gateway/readiness.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// A connected socket and one wait for something to read from it, which goes on while nobody asks:
/// a peer that hangs up is heard of at once, and whoever asks next finds the wait begun. Neither
/// reading nor sending blocks. One that the system has no room to watch is closed. Loop thread.
class WatchedSocket final : public std::enable_shared_from_this<WatchedSocket>,
                            private Readiness::Listener {
 public:
  using ErrorCode = boost::system::error_code;

  /// `unexpected` is told when something has come, or the peer has hung up, while nobody waits for
  /// it; then nothing is watched until watch() is called again. The socket is taken over from Asio.
  WatchedSocket(boost::asio::io_context& loop,
                boost::asio::ip::tcp::socket socket,
                std::function<void()> unexpected = {});
  /// The same of any connected socket that gives bytes in order.
  WatchedSocket(boost::asio::io_context& loop,
                Descriptor socket,
                std::function<void()> unexpected = {});
  ~WatchedSocket();
  WatchedSocket(const WatchedSocket&) = delete;
  WatchedSocket& operator=(const WatchedSocket&) = delete;

  [[nodiscard]] bool is_open() const { return static_cast<bool>(socket_); }

  /// Begins to wait, unless that is under way.
  void watch();
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
  /// Lets whoever waits to read go on, at once.
  void wake() {
    if (reader_) {
      reader_.resume();
    }
  }

  /// Reads what has come, at most `space`; how many bytes that were. Fails with would_block where
  /// nothing has, and with eof where nothing will.
  [[nodiscard]] std::size_t read_some(boost::asio::mutable_buffer space, ErrorCode& failure);

  /// Sends as much of `left` as the network takes without waiting, and takes that off its front.
  /// What goes through the gateway mostly fits.
  template <class Buffers>
  ErrorCode send_some(boost::beast::buffers_suffix<Buffers>& left) {
    std::array<boost::asio::const_buffer, kPieces> pieces{};
    std::size_t count = 0;
    for (const boost::asio::const_buffer piece : boost::beast::buffers_range_ref(left)) {
      if (piece.size() > 0 && count < kPieces) {
        pieces[count++] = piece;
      }
    }
    ErrorCode failure;
    left.consume(send_pieces(std::span(pieces.data(), count), failure));
    return failure;
  }

  /// What writable() gives, to be awaited.
  class Writable {
   public:
    [[nodiscard]] bool await_ready() const { return !socket_.is_open(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> waiter) {
      socket_.writer_ = Continuation(waiter);
      socket_.readiness_.expect();
    }
    static void await_resume() {}

   private:
    friend class WatchedSocket;
    explicit Writable(WatchedSocket& socket) : socket_(socket) {}
    WatchedSocket& socket_;
  };
  /// Awaited after send_some() has left something, waits for room, or for the end of either side.
  /// One coroutine at a time.
  [[nodiscard]] Writable writable() { return Writable(*this); }

  /// Tells the peer that nothing more is sent to it.
  void end_sending();
  /// Hangs up. Whoever waits goes on when the loop runs next; where nobody does, but the socket is
  /// watched, that is unexpected.
  void close();
  /// Hangs up, and tells nobody: for the end of whoever was told.
  void leave() {
    unexpected_ = nullptr;
    close();
  }

 private:
  static constexpr std::size_t kPieces = 8;

  void on_news(const Readiness::News& news) override;
  void on_loop_end() override;
  void stir();
  void stir_soon();
  void let_write();
  std::size_t send_pieces(std::span<const boost::asio::const_buffer> pieces, ErrorCode& failure);

  boost::asio::io_context& loop_;
  Readiness& readiness_;
  Descriptor socket_;
  std::function<void()> unexpected_;
  Continuation reader_{};
  Continuation writer_{};
  bool watching_ = false;
  bool stirred_ = false;
  bool unread_ = false;    ///< Something may be there to read, of which no news will come.
  bool hung_up_ = false;   ///< So it stays.
  bool stirring_ = false;  ///< stir() will be called by the loop.
};

}  // namespace heddle::gateway
