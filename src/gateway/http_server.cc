#include "gateway/http_server.h"

#include <random>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "gateway/http_connection.h"
#include "gateway/signal.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using namespace std::chrono_literals;

namespace {

/// Connections beyond the limit that still get an answer, which is that there are too many.
constexpr std::size_t kOverflowMax = 64;
constexpr Duration kAcceptRetry = 50ms;

}  // namespace

class HttpServer::State {
 public:
  State(asio::io_context& loop, const Options& options, Gatekeeper gatekeeper, Handler handler)
      : shared(std::make_shared<ConnectionShared>(ConnectionShared{
            .loop = loop,
            .limits = options.limits,
            .gatekeeper = std::move(gatekeeper),
            .handler = std::move(handler),
            .rng = Rng((std::uint64_t{std::random_device{}()} << 32U) | std::random_device{}())})),
        room(loop) {}

  /// Takes in connections at one address for as long as it is open.
  static Task<void> accept(std::shared_ptr<State> self, std::size_t index);
  /// Tells of the end of the last connection, if anybody wants to know.
  void tell_drained() {
    if (shared->draining && shared->open.empty() && drained) {
      asio::post(shared->loop, std::exchange(drained, nullptr));
    }
  }

  std::shared_ptr<ConnectionShared> shared;
  std::vector<tcp::acceptor> acceptors{};
  Signal room;  ///< Told when a connection has closed.
  std::function<void()> drained{};
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
  for (HttpConnection* connection : state_->shared->open) {
    connection->close();
  }
}

std::size_t HttpServer::connections() const {
  return state_->shared->open.size();
}

void HttpServer::drain(std::function<void()> drained) {
  state_->shared->draining = true;
  state_->drained = std::move(drained);
  for (tcp::acceptor& acceptor : state_->acceptors) {
    ErrorCode ignored;
    acceptor.close(ignored);
  }
  for (HttpConnection* connection : state_->shared->open) {
    connection->wind_down();
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

Task<void> HttpServer::State::accept(std::shared_ptr<State> self, std::size_t index) {
  tcp::acceptor& acceptor = self->acceptors[index];
  const auto most = static_cast<std::size_t>(self->shared->limits.connections);
  asio::steady_timer pause(self->shared->loop);
  while (acceptor.is_open()) {
    if (self->shared->open.size() >= most + kOverflowMax) {
      co_await self->room.wait(kAcceptRetry);
      continue;
    }
    auto [failure, socket] = co_await acceptor.async_accept(kAwait);
    if (failure) {
      // Mostly a lack of file descriptors, which passes.
      pause.expires_after(kAcceptRetry);
      co_await pause.async_wait(kAwait);
      continue;
    }
    ErrorCode ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.non_blocking(true, ignored);
    const bool too_many = self->shared->open.size() >= most;
    HttpConnection::start(self->shared, std::move(socket), too_many);
  }
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(asio::io_context& loop,
                                                       const Options& options,
                                                       Gatekeeper gatekeeper,
                                                       Handler handler) {
  auto state = std::make_shared<State>(loop, options, std::move(gatekeeper), std::move(handler));
  std::unique_ptr<HttpServer> server(new HttpServer(state));
  for (const config::ListenAddress& address : options.listen) {
    Result<tcp::acceptor> acceptor = bind(loop, address);
    if (!acceptor) {
      return acceptor.error();
    }
    ErrorCode ignored;
    server->addresses_.push_back(
        {.host = address.host, .port = acceptor->local_endpoint(ignored).port()});
    state->acceptors.push_back(std::move(acceptor).value());
  }
  for (std::size_t i = 0; i < state->acceptors.size(); ++i) {
    spawn(loop, State::accept(state, i));
  }
  return server;
}

}  // namespace heddle::gateway
