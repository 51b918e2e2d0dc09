#include "rpc/link.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include <sys/socket.h>

namespace heddle::rpc {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;

struct Outgoing {
  std::array<std::byte, kFrameHeaderBytes> header{};
  std::string payload{};
  std::vector<Descriptor> descriptors{};
  std::size_t sent = 0;

  [[nodiscard]] std::size_t bytes() const { return header.size() + payload.size(); }
};

/// Ancillary data large enough for the descriptors of one frame.
union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int) * kFrameDescriptorsMax)];
};

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

/// Sends as much of `frame` as the socket takes. Its descriptors go with its first byte.
ssize_t send_some(int socket, Outgoing& frame) {
  const std::size_t header_left =
      frame.sent < frame.header.size() ? frame.header.size() - frame.sent : 0;
  const std::size_t payload_at = frame.sent - (frame.header.size() - header_left);
  std::array<iovec, 2> parts{};
  parts[0] = {frame.header.data() + (frame.header.size() - header_left), header_left};
  parts[1] = {frame.payload.data() + payload_at, frame.payload.size() - payload_at};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  Control control{};
  if (frame.sent == 0 && !frame.descriptors.empty()) {
    const std::size_t bytes = sizeof(int) * frame.descriptors.size();
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    for (std::size_t i = 0; i < frame.descriptors.size(); ++i) {
      const int fd = frame.descriptors[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// Receives into `buffer`; descriptors that came along go to `decoder` at once.
ssize_t receive_some(int socket, std::span<std::byte> buffer, FrameDecoder& decoder) {
  iovec part{buffer.data(), buffer.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received <= 0) {
    return received;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      decoder.add(Descriptor(fd));
    }
  }
  return received;
}

}  // namespace

class Link::Impl : public std::enable_shared_from_this<Link::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       Descriptor socket,
       Handlers handlers,
       LinkLimits limits)
      : socket_(executor),
        handlers_(std::move(handlers)),
        limits_(limits),
        decoder_(limits.payload_bytes_max),
        buffer_(kReadBytes) {
    boost::system::error_code error;
    socket_.assign(asio::local::stream_protocol(), socket.get(), error);
    HEDDLE_CHECK(!error);
    (void)socket.release();
  }

  void start() { wait_readable(); }

  void shut() {
    closed_ = true;
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

  Result<void> send(std::string payload, std::vector<Descriptor> descriptors) {
    if (closed_) {
      return Error{Code::kUnavailable, "send a message: the link is closed"};
    }
    const std::size_t bytes = kFrameHeaderBytes + payload.size();
    if (payload.size() > limits_.payload_bytes_max) {
      return Error{Code::kResourceExhausted,
                   "send a message of " + std::to_string(payload.size()) + " bytes: the limit is " +
                       std::to_string(limits_.payload_bytes_max)};
    }
    if (queued_bytes_ + bytes > limits_.queued_bytes_max) {
      return Error{Code::kResourceExhausted,
                   "send a message of " + std::to_string(bytes) +
                       " bytes: " + std::to_string(queued_bytes_) +
                       " are waiting for the peer already, the "
                       "limit is " +
                       std::to_string(limits_.queued_bytes_max)};
    }
    Outgoing frame;
    frame.header = encode_frame_header(payload.size(), descriptors.size());
    frame.payload = std::move(payload);
    frame.descriptors = std::move(descriptors);
    queue_.push_back(std::move(frame));
    queued_bytes_ += bytes;
    if (!writing_) {
      write();
    }
    return {};
  }

  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }

 private:
  void close(Error error) {
    if (closed_) {
      return;
    }
    shut();
    handlers_.on_closed(error);
  }

  void wait_readable() {
    socket_.async_wait(asio::socket_base::wait_read,
                       [self = shared_from_this()](const boost::system::error_code& error) {
                         if (!error && !self->closed_) {
                           self->read();
                         }
                       });
  }

  void read() {
    const ssize_t received = receive_some(socket_.native_handle(), buffer_, decoder_);
    if (received == 0) {
      return close({Code::kUnavailable, "the peer has closed the link"});
    }
    if (received < 0) {
      if (would_block(errno) || errno == EINTR) {
        return wait_readable();
      }
      return close({Code::kUnavailable, std::string("receive from peer: ") + std::strerror(errno)});
    }
    decoder_.add(std::span(buffer_).first(static_cast<std::size_t>(received)));
    for (;;) {
      Result<std::optional<Frame>> frame = decoder_.next();
      if (!frame) {
        return close(frame.error());
      }
      if (!frame->has_value()) {
        return wait_readable();
      }
      handlers_.on_frame(std::move(**frame));
      if (closed_) {
        return;
      }
    }
  }

  /// Sends until the queue is empty or the socket is full. Called from send() too, so that a frame
  /// leaves without a turn of the loop; hence whatever calls a handler is posted.
  void write() {
    while (!queue_.empty()) {
      const ssize_t sent = send_some(socket_.native_handle(), queue_.front());
      if (sent < 0 && errno == EINTR) {
        continue;
      }
      if (sent < 0 && would_block(errno)) {
        return wait_writable();
      }
      if (sent < 0) {
        // The reading side reports the end, after all that the peer still managed to say.
        writing_ = true;
        return;
      }
      Outgoing& front = queue_.front();
      front.sent += static_cast<std::size_t>(sent);
      if (front.sent == front.bytes()) {
        queued_bytes_ -= front.bytes();
        queue_.pop_front();
      }
    }
  }

  void wait_writable() {
    writing_ = true;
    socket_.async_wait(asio::socket_base::wait_write,
                       [self = shared_from_this()](const boost::system::error_code& error) {
                         if (error || self->closed_) {
                           return;
                         }
                         self->writing_ = false;
                         self->write();
                         if (self->queue_.empty() && self->handlers_.on_drained) {
                           self->handlers_.on_drained();
                         }
                       });
  }

  asio::local::stream_protocol::socket socket_;
  Handlers handlers_;
  LinkLimits limits_;
  FrameDecoder decoder_;
  std::vector<std::byte> buffer_;
  std::deque<Outgoing> queue_{};
  std::atomic<std::size_t> queued_bytes_ = 0;
  bool writing_ = false;  ///< Waiting for the socket to take more, or it never will.
  bool closed_ = false;
};

Link::Link(const asio::any_io_executor& executor,
           Descriptor socket,
           Handlers handlers,
           LinkLimits limits)
    : impl_(std::make_shared<Impl>(executor, std::move(socket), std::move(handlers), limits)) {
  HEDDLE_CHECK(impl_ != nullptr);
  impl_->start();
}

Link::~Link() {
  impl_->shut();
}

Result<void> Link::send(std::string payload, std::vector<Descriptor> descriptors) {
  return impl_->send(std::move(payload), std::move(descriptors));
}

std::size_t Link::queued_bytes() const {
  return impl_->queued_bytes();
}

namespace {

Result<std::pair<Descriptor, Descriptor>> make_pair_of(int type) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return Error{Code::kResourceExhausted,
                 std::string("make a pair of Unix sockets: ") + std::strerror(errno)};
  }
  return std::pair(Descriptor(fds[0]), Descriptor(fds[1]));
}

}  // namespace

Result<std::pair<Descriptor, Descriptor>> socket_pair() {
  return make_pair_of(SOCK_STREAM);
}

Result<std::pair<Descriptor, Descriptor>> packet_pair() {
  return make_pair_of(SOCK_SEQPACKET);
}

}  // namespace heddle::rpc
