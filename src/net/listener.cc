#include "net/listener.h"

#include <list>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

namespace heddle::net {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

/// After a failure to accept, which is one of this host: it has no descriptor left, say.
constexpr Duration kPause = std::chrono::milliseconds(100);

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       Self self,
       std::vector<Role> roles,
       Handlers handlers,
       const ListenerOptions& options)
      : acceptor_(executor),
        pause_(executor),
        self_(std::move(self)),
        wanted_{.roles = std::move(roles)},
        handlers_(std::move(handlers)),
        options_(options) {}

  Result<void> open(const Address& address) {
    ErrorCode failure;
    const asio::ip::address numeric = asio::ip::make_address(address.host, failure);
    if (failure) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "listen at \"" + address.text() + "\": \"" + address.host +
                              "\" is no numeric address; want one such as 0.0.0.0 or ::"};
    }
    const tcp::endpoint endpoint(numeric, address.port);
    acceptor_.open(endpoint.protocol(), failure);
    if (!failure) {
      acceptor_.set_option(tcp::acceptor::reuse_address(true), failure);
    }
    if (!failure) {
      acceptor_.bind(endpoint, failure);
    }
    if (!failure) {
      acceptor_.listen(asio::socket_base::max_listen_connections, failure);
    }
    if (failure) {
      return Error{.code = Code::kUnavailable,
                   .message = "listen at " + address.text() + ": " + failure.message()};
    }
    return {};
  }

  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](const ErrorCode& failure, tcp::socket socket) {
          if (self->closed_) {
            return;
          }
          if (failure) {
            return self->pause();
          }
          self->greet(std::move(socket));
          if (!self->closed_) {
            self->accept();
          }
        });
  }

  void close() {
    closed_ = true;
    ErrorCode ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    pending_.clear();
  }

  [[nodiscard]] std::uint16_t port() const {
    ErrorCode closed;
    return acceptor_.local_endpoint(closed).port();
  }

 private:
  using Pending = std::list<std::unique_ptr<HostLink>>;

  void pause() {
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](const ErrorCode& stopped) {
      if (!stopped && !self->closed_) {
        self->accept();
      }
    });
  }

  void greet(tcp::socket socket) {
    if (pending_.size() >= options_.pending_max) {
      pending_.pop_front();
      refused({.code = Code::kResourceExhausted,
               .message = "a connection was dropped: " + std::to_string(options_.pending_max) +
                          " others had not greeted either"});
    }
    if (closed_) {
      return;
    }
    const Pending::iterator place = pending_.insert(pending_.end(), nullptr);
    // The link is this object's until it is handed over, and calls nobody once it is destroyed.
    *place = std::make_unique<HostLink>(
        std::move(socket),
        Side::kAccepts,
        self_,
        wanted_,
        [this, place](const Result<Peer>& peer) { opened(place, peer); },
        options_.link);
  }

  void opened(Pending::iterator place, const Result<Peer>& peer) {
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end the listener.
    std::unique_ptr<HostLink> link = std::move(*place);
    pending_.erase(place);
    if (peer) {
      handlers_.on_peer(std::move(link), *peer);
    } else {
      refused(peer.error());
    }
  }

  void refused(const Error& why) {
    if (handlers_.on_refused) {
      handlers_.on_refused(why);
    }
  }

  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  const Self self_;
  const Wanted wanted_;
  const Handlers handlers_;
  const ListenerOptions options_;
  Pending pending_{};  ///< Oldest first.
  bool closed_ = false;
};

Result<std::unique_ptr<Listener>> Listener::open(const asio::any_io_executor& executor,
                                                 const Address& address,
                                                 Self self,
                                                 std::vector<Role> roles,
                                                 Handlers handlers,
                                                 const ListenerOptions& options) {
  const auto impl = std::make_shared<Impl>(
      executor, std::move(self), std::move(roles), std::move(handlers), options);
  if (const Result<void> opened = impl->open(address); !opened) {
    return opened.error();
  }
  impl->accept();
  return std::unique_ptr<Listener>(new Listener(impl));
}

Listener::~Listener() {
  impl_->close();
}

std::uint16_t Listener::port() const {
  return impl_->port();
}

}  // namespace heddle::net
