#include "remote/carried_stream.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include "remote/stream_messages.h"

namespace heddle::remote {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

namespace {

/// The other end hears of what was taken when it is so much.
constexpr std::uint64_t kTellTaken = kStreamWindow / 4;

}  // namespace

class CarriedStream::Impl : public std::enable_shared_from_this<CarriedStream::Impl> {
 public:
  explicit Impl(Handlers handlers) : handlers_(std::move(handlers)) {}

  void begin(Socket socket) {
    socket_.emplace(std::move(socket));
    ErrorCode ignored;
    socket_->non_blocking(true, ignored);
    read_later();
    write_later();
  }

  void close() {
    closed_ = true;
    if (socket_) {
      ErrorCode ignored;
      socket_->close(ignored);
    }
  }

  Result<void> put(std::string bytes) {
    held_ += bytes.size();
    if (held_ > kStreamWindow) {
      return Error{.code = Code::kCorrupt,
                   .message = "it sends more of a stream than the " +
                              std::to_string(kStreamWindow) + " bytes that may be on their way"};
    }
    if (!closed_) {
      queue_.push_back(std::move(bytes));
      write_later();
    }
    return {};
  }

  Result<void> taken(std::uint64_t bytes) {
    if (bytes > kStreamWindow - credit_) {
      return Error{.code = Code::kCorrupt,
                   .message = "it has taken " + std::to_string(bytes) +
                              " bytes of a stream, and was sent " +
                              std::to_string(kStreamWindow - credit_)};
    }
    credit_ += bytes;
    read_later();
    return {};
  }

  void resume() { read_later(); }

  void finish(std::function<void()> closed) {
    finished_ = std::move(closed);
    write_later();
  }

 private:
  // ---- From the socket ----

  void read_later() {
    if (closed_ || !socket_ || reading_ || credit_ == 0 || !handlers_.has_room()) {
      return;
    }
    reading_ = true;
    socket_->async_wait(Socket::wait_read, [self = shared_from_this()](const ErrorCode& failure) {
      self->reading_ = false;
      if (!failure && !self->closed_) {
        self->read();
      }
    });
  }

  void read() {
    if (!handlers_.has_room()) {
      return;
    }
    std::string bytes(std::min<std::uint64_t>(credit_, kStreamPieceMost), '\0');
    ErrorCode failure;
    const std::size_t count = socket_->read_some(asio::buffer(bytes), failure);
    if (failure && failure != asio::error::would_block) {
      return end(failure);
    }
    if (count > 0) {
      bytes.resize(count);
      credit_ -= count;
      handlers_.on_bytes(std::move(bytes));
    }
    read_later();
  }

  void end(const ErrorCode& failure) {
    close();
    const Handlers handlers = std::move(handlers_);
    finished_ = nullptr;
    if (failure == asio::error::eof) {
      handlers.on_ended(std::nullopt);
    } else {
      handlers.on_ended(Error{.code = Code::kUnavailable,
                              .message = "the connection broke: " + failure.message()});
    }
  }

  // ---- To the socket ----

  /// From the loop, as whoever is told may be at something else.
  void write_later() {
    if (!closed_ && socket_ && !writing_) {
      writing_ = true;
      asio::post(socket_->get_executor(), [self = shared_from_this()] { self->write(); });
    }
  }

  void write() {
    writing_ = false;
    while (!closed_ && !queue_.empty()) {
      const std::string& front = queue_.front();
      ErrorCode failure;
      const std::size_t count =
          socket_->write_some(asio::buffer(front.data() + sent_, front.size() - sent_), failure);
      if (failure == asio::error::would_block) {
        writing_ = true;
        socket_->async_wait(Socket::wait_write,
                            [self = shared_from_this()](const ErrorCode& stopped) {
                              if (!stopped && !self->closed_) {
                                self->write();
                              }
                            });
        return;
      }
      if (failure) {
        return stop_writing();
      }
      sent_ += count;
      if (sent_ == front.size()) {
        queue_.pop_front();
        sent_ = 0;
      }
      note_taken(count);
    }
    if (!closed_ && finished_) {
      close();
      std::exchange(finished_, nullptr)();
    }
  }

  /// The socket takes no more, and may have something to say still: an answer to half a request.
  /// What comes for it is dropped.
  void stop_writing() {
    std::uint64_t left = 0;
    for (const std::string& piece : std::exchange(queue_, {})) {
      left += piece.size();
    }
    left -= std::exchange(sent_, 0);
    note_taken(left);
    if (!closed_ && finished_) {
      close();
      std::exchange(finished_, nullptr)();
    }
  }

  void note_taken(std::uint64_t count) {
    held_ -= count;
    untold_ += count;
    if (untold_ >= kTellTaken) {
      handlers_.on_taken(std::exchange(untold_, 0));
    }
  }

  Handlers handlers_;
  std::optional<Socket> socket_{};
  std::uint64_t credit_ = kStreamWindow;  ///< That may be sent to the other end.
  std::deque<std::string> queue_{};       ///< For the socket.
  std::size_t sent_ = 0;                  ///< Of the first of them.
  std::uint64_t held_ = 0;                ///< That came, and the socket has not taken.
  std::uint64_t untold_ = 0;              ///< That it took, and the other end has not heard of.
  std::function<void()> finished_{};      ///< Nothing more comes; whom to tell.
  bool reading_ = false;
  bool writing_ = false;
  bool closed_ = false;
};

CarriedStream::CarriedStream(Handlers handlers)
    : impl_(std::make_shared<Impl>(std::move(handlers))) {}

CarriedStream::~CarriedStream() {
  impl_->close();
}

void CarriedStream::begin(Socket socket) {
  impl_->begin(std::move(socket));
}
Result<void> CarriedStream::put(std::string bytes) {
  return impl_->put(std::move(bytes));
}
Result<void> CarriedStream::taken(std::uint64_t bytes) {
  return impl_->taken(bytes);
}
void CarriedStream::resume() {
  impl_->resume();
}
void CarriedStream::finish(std::function<void()> closed) {
  impl_->finish(std::move(closed));
}

}  // namespace heddle::remote
