#include "gateway/http_server.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/http_connection.h"
#include "gateway/readiness.h"
#include "gateway/signal.h"
#include "gateway/task.h"
#include "gateway/tls_front.h"

namespace heddle::gateway {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr Duration kAcceptRetry = 50ms;
constexpr Duration kWarningInterval = 1min;
constexpr std::size_t kTurnedAwayMost = 64;
constexpr Duration kTurnedAwayPatience = 1s;

/// With what is left open in it filled in.
HttpServer::Options complete(HttpServer::Options options) {
  config::Limits& limits = options.limits;
  if (limits.connections_per_client == 0) {
    limits.connections_per_client = limits.connections - limits.connections / 4;
  }
  return options;
}

}  // namespace

class HttpServer::State {
 public:
  State(asio::io_context& loop, const Options& options, Gatekeeper gatekeeper, Handler handler)
      : shared(new ConnectionShared{
            .loop = loop,
            .options = complete(options),
            .gatekeeper = std::move(gatekeeper),
            .handler = std::move(handler),
            .rng = Rng((std::uint64_t{std::random_device{}()} << 32U) | std::random_device{}())}),
        room(loop) {}

  /// Reads the certificate, if an address of `options` is to speak TLS.
  Result<void> open_tls(const Options& options);
  /// Takes in connections at one address for as long as it is open.
  static Task<void> accept(std::shared_ptr<State> self, std::size_t index);
  /// Whether another may come, in the place of a silent one if need be.
  [[nodiscard]] bool has_room() const {
    return shared->table.has_silent() || shared->table.size() < connections() + overflow();
  }
  [[nodiscard]] std::size_t connections() const {
    return static_cast<std::size_t>(shared->options.limits.connections);
  }
  [[nodiscard]] std::size_t overflow() const { return shared->options.overflow; }
  /// accept() has failed, mostly for want of descriptors.
  void make_do(const ErrorCode& failure);
  void close_doors() {
    for (Door& door : doors) {
      ErrorCode ignored;
      door.acceptor.close(ignored);
    }
  }
  /// Tells a client that comes while the server ends that it does, whatever it asks.
  static Task<void> turn_away(std::shared_ptr<State> self, tcp::socket socket);
  /// Tells of the end of the last connection, if anybody wants to know.
  void tell_drained() {
    const bool all_sent = tls == nullptr || tls->empty();
    if (shared->draining && shared->table.size() == 0 && all_sent && drained) {
      close_doors();
      asio::post(shared->loop, std::exchange(drained, nullptr));
    }
  }

  std::shared_ptr<ConnectionShared> shared;
  struct Door {
    tcp::acceptor acceptor;
    bool tls = false;
  };
  std::vector<Door> doors{};
  std::unique_ptr<TlsFront> tls{};  ///< Of the doors that speak it.
  std::size_t turned_away = 0;      ///< Clients that are being told of the end.
  Signal room;                      ///< Told when a connection has closed.
  std::function<void()> drained{};
  Instant may_warn_at{};
};

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {
  state_->shared->closed = [weak = std::weak_ptr<State>(state_)] {
    if (const std::shared_ptr<State> state = weak.lock()) {
      state->room.notify();
      state->tell_drained();
    }
  };
}

HttpServer::~HttpServer() {
  drain(nullptr);
  close();
  state_->tls.reset();
}

std::size_t HttpServer::connections() const {
  return state_->shared->table.size() + (state_->tls == nullptr ? 0 : state_->tls->alone());
}

void HttpServer::reload(const std::optional<config::TlsConfig>& tls) {
  if (state_->tls != nullptr && tls) {
    state_->tls->reload(*tls);
  } else if ((state_->tls != nullptr) != tls.has_value()) {
    log::warning("tls begins or ends to be spoken when the server is started anew");
  }
}

void HttpServer::drain(std::function<void()> drained) {
  state_->shared->draining = true;
  state_->drained = std::move(drained);
  for (State::Door& door : state_->doors) {
    if (door.tls) {
      ErrorCode ignored;
      door.acceptor.close(ignored);
    }
  }
  if (state_->tls != nullptr) {
    state_->tls->drain();
  }
  state_->shared->table.for_each([](ConnectionTable::Entry& entry) { entry.wind_down(); });
  state_->tell_drained();
}

void HttpServer::close() {
  state_->close_doors();
  state_->shared->table.for_each([this](ConnectionTable::Entry& entry) {
    state_->shared->table.leave(entry);
    entry.close();
  });
  if (state_->tls != nullptr) {
    state_->tls->close();
  }
  state_->tell_drained();
}

namespace {

Result<tcp::acceptor> bind(asio::io_context& loop, const config::ListenAddress& address) {
  ErrorCode failure;
  tcp::resolver resolver(loop);
  const auto found =
      resolver.resolve(address.host, std::to_string(address.port), tcp::resolver::passive, failure);
  tcp::acceptor acceptor(loop);
  if (!failure) {
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor.open(endpoint.protocol(), failure);
    if (!failure) {
      acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
      acceptor.bind(endpoint, failure);
    }
    if (!failure) {
      acceptor.listen(tcp::acceptor::max_listen_connections, failure);
    }
  }
  if (failure) {
    return Error{.code = Code::kUnavailable,
                 .message = "listen on " + address.host + ":" + std::to_string(address.port) +
                            ": " + failure.message()};
  }
  return acceptor;
}

}  // namespace

void HttpServer::State::make_do(const ErrorCode& failure) {
  if (failure != asio::error::no_descriptors && failure != ErrorCode(ENFILE, failure.category())) {
    return;
  }
  shared->table.push_out();
  if (steady_now() >= may_warn_at) {
    may_warn_at = steady_now() + kWarningInterval;
    log::warning("a connection was not taken in", {{"why", failure.message()}});
  }
}

Task<void> HttpServer::State::turn_away(std::shared_ptr<State> self, tcp::socket socket) {
  ++self->turned_away;
  asio::steady_timer patience(self->shared->loop, kTurnedAwayPatience);
  patience.async_wait([&socket](const ErrorCode& stopped) {
    ErrorCode ignored;
    if (!stopped) {
      socket.close(ignored);
    }
  });
  std::array<char, 8192> asked{};  // More than a probe sends; what else there is does not matter.
  const auto [unread, size] = co_await socket.async_read_some(asio::buffer(asked), kAwait);
  if (!unread && size > 0) {
    const std::string body = api::to_json(api::unavailable("the server is shutting down"));
    const std::string answer =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Retry-After: 5\r\nConnection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    const auto [unsent, sent] = co_await asio::async_write(socket, asio::buffer(answer), kAwait);
    (void)unsent;  // It ends either way.
    (void)sent;
  }
  patience.cancel();
  --self->turned_away;
}

Task<void> HttpServer::State::accept(std::shared_ptr<State> self, std::size_t index) {
  tcp::acceptor& acceptor = self->doors[index].acceptor;
  asio::steady_timer pause(self->shared->loop);
  while (acceptor.is_open()) {
    if (!self->has_room()) {
      co_await self->room.wait(kAcceptRetry);
      continue;
    }
    auto [failure, socket] = co_await acceptor.async_accept(kAwait);
    if (failure) {
      self->make_do(failure);
      pause.expires_after(kAcceptRetry);
      co_await pause.async_wait(kAwait);
      continue;
    }
    ErrorCode ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.non_blocking(true, ignored);
    if (self->shared->draining && !self->doors[index].tls) {
      if (self->turned_away < kTurnedAwayMost) {
        spawn(self->shared->loop, turn_away(self, std::move(socket)));
      }
    } else if (!self->doors[index].tls) {
      HttpConnection::start(self->shared, std::move(socket));
    } else if (!self->shared->draining) {
      self->tls->accept(std::move(socket));
    }
  }
}

namespace {

bool speaks_tls(const config::ListenAddress& address, bool usual) {
  return address.scheme == config::Scheme::kHttps ||
         (address.scheme == config::Scheme::kUsual && usual);
}

}  // namespace

Result<void> HttpServer::State::open_tls(const Options& options) {
  const auto speaks = [&options](const config::ListenAddress& address) {
    return speaks_tls(address, options.tls.has_value());
  };
  if (std::none_of(options.listen.begin(), options.listen.end(), speaks)) {
    return {};
  }
  if (!options.tls) {
    return Error{
        .code = Code::kInvalidArgument,
        .message = "listen: an address has https://; set tls.certificate and tls.key, too"};
  }
  Result<TlsFiles> files = TlsFiles::open(*options.tls);
  if (!files) {
    return files.error();
  }
  for (const std::string& warning : files->warnings()) {
    log::warning(warning);
  }
  tls = std::make_unique<TlsFront>(
      shared->loop,
      std::move(files).value(),
      TlsFront::Options{.handshake_timeout = options.limits.header_timeout,
                        .stall_timeout = options.limits.stall_timeout,
                        .handshakes_max = std::clamp<std::size_t>(connections() / 8, 8, 512)},
      [shared = shared](tcp::socket socket, std::string peer) {
        HttpConnection::start(shared, std::move(socket), std::move(peer));
      },
      [shared = shared] { shared->closed(); });
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(asio::io_context& loop,
                                                       const Options& options,
                                                       Gatekeeper gatekeeper,
                                                       Handler handler) {
  auto state = std::make_shared<State>(loop, options, std::move(gatekeeper), std::move(handler));
  std::unique_ptr<HttpServer> server(new HttpServer(state));
  const Result<void> certified = state->open_tls(options);
  if (!certified) {
    return certified.error();
  }
  if (!asio::use_service<Readiness>(loop).works()) {
    return Error{.code = Code::kUnavailable,
                 .message = "watch connections: no file descriptor is left (ulimit -n)"};
  }
  for (const config::ListenAddress& address : options.listen) {
    Result<tcp::acceptor> acceptor = bind(loop, address);
    if (!acceptor) {
      return acceptor.error();
    }
    ErrorCode ignored;
    const bool tls = speaks_tls(address, options.tls.has_value());
    server->addresses_.push_back({.host = address.host,
                                  .port = acceptor->local_endpoint(ignored).port(),
                                  .scheme = tls ? config::Scheme::kHttps : config::Scheme::kHttp});
    state->doors.push_back({.acceptor = std::move(acceptor).value(), .tls = tls});
  }
  for (std::size_t i = 0; i < state->doors.size(); ++i) {
    spawn(loop, State::accept(state, i));
  }
  return server;
}

}  // namespace heddle::gateway
