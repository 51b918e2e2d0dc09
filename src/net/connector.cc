#include "net/connector.h"

#include <optional>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"

namespace heddle::net {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Connector::Impl : public std::enable_shared_from_this<Connector::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       Address address,
       Self self,
       Wanted wanted,
       Handlers handlers,
       const ConnectorOptions& options)
      : address_(std::move(address)),
        self_(std::move(self)),
        wanted_(std::move(wanted)),
        handlers_(std::move(handlers)),
        options_(options),
        backoff_(options.backoff),
        resolver_(executor),
        socket_(executor),
        timer_(executor) {}

  void attempt() {
    late_ = false;
    socket_ = tcp::socket(timer_.get_executor());
    timer_.expires_after(options_.connecting);
    timer_.async_wait([self = shared_from_this()](const ErrorCode& stopped) {
      if (!stopped) {
        self->give_up();
      }
    });
    resolver_.async_resolve(address_.host,
                            std::to_string(address_.port),
                            [self = shared_from_this()](const ErrorCode& failure,
                                                        const tcp::resolver::results_type& found) {
                              self->resolved(failure, found);
                            });
  }

  void close() {
    closed_ = true;
    timer_.cancel();
    give_up();
    link_.reset();
  }

  Result<void> send(std::string payload) {
    if (!link_) {
      return Error{.code = Code::kUnavailable,
                   .message = "send a message: there is no link to " + address_.text()};
    }
    return link_->send(std::move(payload));
  }

  [[nodiscard]] std::size_t queued_bytes() const { return link_ ? link_->queued_bytes() : 0; }

  /// From the loop rather than from here: the caller must not hear of it within its call.
  void end(const std::string& why) {
    if (!std::exchange(up_, false)) {
      return;
    }
    link_->end(why);
    asio::post(timer_.get_executor(), [self = shared_from_this(), why] {
      if (!self->closed_) {
        self->ended({.code = Code::kUnavailable,
                     .message = "link to " + self->address_.text() + " was ended: " + why});
      }
    });
  }

 private:
  /// Ends a try to connect that takes too long.
  void give_up() {
    late_ = true;
    ErrorCode ignored;
    resolver_.cancel();
    socket_.close(ignored);
  }

  void resolved(const ErrorCode& failure, const tcp::resolver::results_type& found) {
    if (closed_) {
      return;
    }
    if (failure || late_) {
      return unreachable(failure);
    }
    asio::async_connect(
        socket_,
        found,
        [self = shared_from_this()](const ErrorCode& refused, const tcp::endpoint&) {
          self->connected(refused);
        });
  }

  void connected(const ErrorCode& failure) {
    if (closed_) {
      return;
    }
    if (failure || late_) {
      return unreachable(failure);
    }
    timer_.cancel();
    // The link is this object's, and calls nobody once it is destroyed.
    link_.emplace(
        std::move(socket_),
        Side::kConnects,
        self_,
        wanted_,
        [this](const Result<Peer>& peer) { opened(peer); },
        options_.link);
  }

  void unreachable(const ErrorCode& failure) {
    down({.code = Code::kUnavailable,
          .message = "link to " + address_.text() + ": " +
                     (late_ ? "it does not answer" : failure.message())});
  }

  void opened(const Result<Peer>& peer) {
    if (!peer) {
      return down(peer.error());
    }
    up_since_ = steady_now();
    up_ = true;
    link_->start({.on_frame = [this](rpc::Frame frame) { hear(std::move(frame)); },
                  .on_closed = [this](const Error& error) { ended(error); },
                  .on_drained = handlers_.on_drained});
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end the connector.
    handlers_.on_up(*peer);
  }

  void hear(rpc::Frame frame) {
    const std::shared_ptr<Impl> self = shared_from_this();
    handlers_.on_frame(std::move(frame));
  }

  /// A link that ends as soon as it is up is no success.
  void ended(const Error& error) {
    if (steady_now() - up_since_ >= options_.backoff.most) {
      backoff_.reset();
    }
    down(error);
  }

  void down(const Error& why) {
    const std::shared_ptr<Impl> self = shared_from_this();
    up_ = false;
    link_.reset();
    timer_.expires_after(backoff_.next());
    timer_.async_wait([self](const ErrorCode& stopped) {
      if (!stopped && !self->closed_) {
        self->attempt();
      }
    });
    handlers_.on_down(why);
  }

  const Address address_;
  const Self self_;
  const Wanted wanted_;
  const Handlers handlers_;
  const ConnectorOptions options_;
  Backoff backoff_;
  tcp::resolver resolver_;
  tcp::socket socket_;        ///< While it connects.
  asio::steady_timer timer_;  ///< Of the try, or of the pause before the next.
  std::optional<HostLink> link_{};
  bool up_ = false;  ///< The link is, and was not ended here.
  Instant up_since_{};
  bool late_ = false;  ///< This try has taken too long.
  bool closed_ = false;
};

Connector::Connector(const asio::any_io_executor& executor,
                     Address address,
                     Self self,
                     Wanted wanted,
                     Handlers handlers,
                     const ConnectorOptions& options)
    : impl_(std::make_shared<Impl>(executor,
                                   std::move(address),
                                   std::move(self),
                                   std::move(wanted),
                                   std::move(handlers),
                                   options)) {
  impl_->attempt();
}

Connector::~Connector() {
  impl_->close();
}

Result<void> Connector::send(std::string payload) {
  return impl_->send(std::move(payload));
}

std::size_t Connector::queued_bytes() const {
  return impl_->queued_bytes();
}

void Connector::end(const std::string& why) {
  impl_->end(why);
}

}  // namespace heddle::net
