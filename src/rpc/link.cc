#include "rpc/link.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <span>
#include <string_view>
#include <utility>

#include "rpc/unix_stream.h"

#include <sys/socket.h>

namespace heddle::rpc {

namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;

struct Outgoing {
  std::array<std::byte, kFrameHeaderBytes> header{};
  std::string payload{};
  std::vector<Descriptor> descriptors{};
  std::size_t sent = 0;

  [[nodiscard]] std::size_t bytes() const { return header.size() + payload.size(); }
  [[nodiscard]] std::span<const std::byte> header_left() const {
    return std::span(header).subspan(std::min(sent, header.size()));
  }
  [[nodiscard]] std::string_view payload_left() const {
    return std::string_view(payload).substr(sent - std::min(sent, header.size()));
  }
  [[nodiscard]] std::span<const Descriptor> descriptors_left() const {
    return std::span(descriptors).first(sent == 0 ? descriptors.size() : 0);
  }
};

}  // namespace

class Link::Impl : public std::enable_shared_from_this<Link::Impl> {
 public:
  Impl(std::unique_ptr<Stream> stream, Handlers handlers, LinkLimits limits)
      : stream_(std::move(stream)),
        handlers_(std::move(handlers)),
        limits_(limits),
        decoder_(limits.payload_bytes_max),
        buffer_(kReadBytes) {}

  void start() { wait_to_read(Stream::Socket::wait_read); }

  void shut() {
    closed_ = true;
    stream_->close();
  }

  Result<void> send(std::string payload, std::vector<Descriptor> descriptors) {
    if (closed_) {
      return Error{Code::kUnavailable, "send a message: the link is closed"};
    }
    if (!descriptors.empty() && !stream_->carries_descriptors()) {
      return Error{Code::kInvalidArgument,
                   "send a message with " + std::to_string(descriptors.size()) +
                       " descriptors: only links within a host carry them"};
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
  [[nodiscard]] std::uint64_t received_bytes() const { return received_bytes_; }

 private:
  void close(const Error& error) {
    if (closed_) {
      return;
    }
    shut();
    handlers_.on_closed(error);
  }

  void wait_to_read(Stream::Socket::wait_type until) {
    stream_->socket().async_wait(
        until, [self = shared_from_this()](const boost::system::error_code& error) {
          if (!error && !self->closed_) {
            self->read();
          }
        });
  }

  void read() {
    const Stream::Moved received = stream_->receive(buffer_, decoder_);
    received_bytes_ += received.bytes;
    decoder_.add(std::span(buffer_).first(received.bytes));
    if (!deliver()) {
      return;
    }
    if (received.end) {
      return close(*received.end);
    }
    wait_to_read(received.until);
  }

  /// Hands on the frames that are complete. False: the link is closed.
  bool deliver() {
    for (;;) {
      Result<std::optional<Frame>> frame = decoder_.next();
      if (!frame) {
        close(frame.error());
        return false;
      }
      if (!frame->has_value()) {
        return true;
      }
      handlers_.on_frame(std::move(**frame));
      if (closed_) {
        return false;
      }
    }
  }

  /// Sends until the queue is empty or the socket is full. Called from send() too, so that a frame
  /// leaves without a turn of the loop; hence whatever calls a handler is posted.
  void write() {
    while (!queue_.empty()) {
      Outgoing& front = queue_.front();
      const Stream::Moved sent =
          stream_->send(front.header_left(), front.payload_left(), front.descriptors_left());
      if (sent.end) {
        // The reading side reports the end, after all that the peer still managed to say.
        writing_ = true;
        return;
      }
      if (sent.bytes == 0) {
        return wait_to_write(sent.until);
      }
      front.sent += sent.bytes;
      if (front.sent == front.bytes()) {
        queued_bytes_ -= front.bytes();
        queue_.pop_front();
      }
    }
  }

  void wait_to_write(Stream::Socket::wait_type until) {
    writing_ = true;
    stream_->socket().async_wait(
        until, [self = shared_from_this()](const boost::system::error_code& error) {
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

  std::unique_ptr<Stream> stream_;
  Handlers handlers_;
  LinkLimits limits_;
  FrameDecoder decoder_;
  std::vector<std::byte> buffer_;
  std::deque<Outgoing> queue_{};
  std::atomic<std::size_t> queued_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;
  bool writing_ = false;  ///< Waiting for the socket to take more, or it never will.
  bool closed_ = false;
};

Link::Link(const boost::asio::any_io_executor& executor,
           Descriptor socket,
           Handlers handlers,
           LinkLimits limits)
    : Link(unix_stream(executor, std::move(socket)), std::move(handlers), limits) {}

Link::Link(std::unique_ptr<Stream> stream, Handlers handlers, LinkLimits limits)
    : impl_(std::make_shared<Impl>(std::move(stream), std::move(handlers), limits)) {
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

std::uint64_t Link::received_bytes() const {
  return impl_->received_bytes();
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
