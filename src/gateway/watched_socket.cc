#include "gateway/watched_socket.h"

#include <cerrno>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

boost::system::error_code last_failure() {
  return errno == EAGAIN ? boost::system::error_code(asio::error::would_block)
                         : boost::system::error_code(errno, boost::system::system_category());
}

Descriptor released(asio::ip::tcp::socket socket) {
  boost::system::error_code closed;
  return socket.is_open() ? Descriptor(socket.release(closed)) : Descriptor();
}

}  // namespace

WatchedSocket::WatchedSocket(asio::io_context& loop,
                             asio::ip::tcp::socket socket,
                             std::function<void()> unexpected)
    : WatchedSocket(loop, released(std::move(socket)), std::move(unexpected)) {}

WatchedSocket::WatchedSocket(asio::io_context& loop,
                             Descriptor socket,
                             std::function<void()> unexpected)
    : loop_(loop),
      readiness_(asio::use_service<Readiness>(loop)),
      socket_(std::move(socket)),
      unexpected_(std::move(unexpected)) {
  readiness_.enter(*this);
  if (is_open() && !readiness_.add(socket_.get(), *this)) {
    socket_ = Descriptor();
  }
}

WatchedSocket::~WatchedSocket() {
  close();
  readiness_.leave(*this);
  for (int waits = (watching_ ? 1 : 0) + (writer_ ? 1 : 0); waits > 0; --waits) {
    readiness_.unexpect();
  }
}

void WatchedSocket::watch() {
  if (watching_) {
    return;
  }
  watching_ = true;
  readiness_.expect();
  if (unread_ || !is_open()) {
    stir_soon();
  }
}

void WatchedSocket::on_news(const Readiness::News& news) {
  const std::shared_ptr<WatchedSocket> self = shared_from_this();
  hung_up_ = hung_up_ || news.hung_up;
  unread_ = unread_ || news.readable;
  if (news.writable) {
    let_write();
  }
  if (news.readable) {
    stir();
  }
}

/// What was watched for is there.
void WatchedSocket::stir() {
  stirring_ = false;
  if (!watching_) {
    return;
  }
  watching_ = false;
  readiness_.unexpect();
  stirred_ = true;
  if (reader_) {
    reader_.resume();
  } else if (unexpected_) {
    stirred_ = false;
    unexpected_();
  }
}

void WatchedSocket::stir_soon() {
  if (!std::exchange(stirring_, true)) {
    asio::post(loop_, [self = shared_from_this()] {
      if (self->stirring_) {
        self->stir();
      }
    });
  }
}

void WatchedSocket::let_write() {
  if (writer_) {
    readiness_.unexpect();
    writer_.resume();
  }
}

std::size_t WatchedSocket::read_some(asio::mutable_buffer space, ErrorCode& failure) {
  const ssize_t count = ::recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT);
  failure = count < 0 ? last_failure() : count == 0 ? ErrorCode(asio::error::eof) : ErrorCode();
  // Less than asked for is all there was; the next that comes is news.
  unread_ = hung_up_ || count == static_cast<ssize_t>(space.size());
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

std::size_t WatchedSocket::send_pieces(std::span<const asio::const_buffer> pieces,
                                       ErrorCode& failure) {
  std::array<iovec, kPieces> vectors{};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    vectors[i] = {.iov_base = const_cast<void*>(pieces[i].data()), .iov_len = pieces[i].size()};
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = pieces.size();
  const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) {
    return static_cast<std::size_t>(count);
  }
  failure = errno == EAGAIN ? ErrorCode() : last_failure();
  return 0;
}

void WatchedSocket::end_sending() {
  (void)::shutdown(socket_.get(), SHUT_WR);
}

void WatchedSocket::close() {
  if (!is_open()) {
    return;
  }
  readiness_.remove(socket_.get());
  socket_ = Descriptor();
  if (const std::shared_ptr<WatchedSocket> self = weak_from_this().lock()) {
    if (watching_) {
      stir_soon();
    }
    if (writer_) {
      asio::post(loop_, [self] { self->let_write(); });
    }
  }
}

void WatchedSocket::on_loop_end() {
  const std::shared_ptr<WatchedSocket> self = weak_from_this().lock();
  const Continuation reader = std::move(reader_);
  const Continuation writer = std::move(writer_);
}

}  // namespace heddle::gateway
