#include "http/client.h"

#include <set>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "base/clock.h"

namespace heddle::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kBufferMax = 4U << 20U;
constexpr unsigned kHttp11 = 11;
constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

using Message = beast::http::request<beast::http::string_body>;
using Endpoints = std::vector<tcp::endpoint>;
using Deadline = std::optional<Instant>;

Deadline deadline_after(const std::optional<Duration>& patience) {
  return patience ? Deadline(steady_now() + *patience) : std::nullopt;
}

void set_deadline(beast::tcp_stream& stream, const Deadline& deadline) {
  if (deadline) {
    stream.expires_at(asio::steady_timer::time_point(deadline->time_since_epoch()));
  } else {
    stream.expires_never();
  }
}

/// "why" of a failure; whose address it is the client adds.
Error failed(const ErrorCode& why) {
  const bool late = why == beast::error::timeout;
  return {.code = late ? Code::kDeadlineExceeded : Code::kUnavailable,
          .message = late ? "no answer in time" : why.message()};
}

/// One connection, which may serve several requests.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual asio::awaitable<Result<void>> open(const Endpoints& endpoints, Deadline deadline) = 0;
  /// `reply` is whole when there is no error, and its status 0 as long as nothing was answered.
  virtual asio::awaitable<ErrorCode> exchange(const Message& message,
                                              const Request& request,
                                              Deadline deadline,
                                              Reply& reply) = 0;
  virtual void close() = 0;
  [[nodiscard]] bool reusable() const { return reusable_; }

 protected:
  bool reusable_ = false;
};

/// Over `Stream`: a TCP stream of Beast's, or TLS above one.
template <class Stream>
class ConnectionOver : public Connection {
 public:
  template <class... Arguments>
  explicit ConnectionOver(Arguments&&... arguments)
      : stream_(std::forward<Arguments>(arguments)...) {}

  asio::awaitable<ErrorCode> exchange(const Message& message,
                                      const Request& request,
                                      Deadline deadline,
                                      Reply& reply) override {
    set_deadline(beast::get_lowest_layer(stream_), deadline);
    reusable_ = false;
    const auto [unsent, sent] = co_await beast::http::async_write(stream_, message, kAwait);
    if (unsent) {
      co_return unsent;
    }
    beast::http::response_parser<beast::http::string_body> parser;
    const bool parts = request.on_part != nullptr;
    parser.body_limit(parts ? kAnyLength : request.body_max);
    const auto [headless, head] =
        co_await beast::http::async_read_header(stream_, buffer_, parser, kAwait);
    if (headless) {
      co_return headless;
    }
    reply.status = static_cast<int>(parser.get().result_int());
    std::string& body = parser.get().body();
    const bool in_parts = parts && reply.status == 200;
    while (!parser.is_done()) {
      const auto [cut, bytes] =
          co_await beast::http::async_read_some(stream_, buffer_, parser, kAwait);
      if (cut) {
        co_return cut;
      }
      if (in_parts && !body.empty()) {
        request.on_part(body);
        body.clear();
      }
    }
    if (closed_) {
      co_return asio::error::operation_aborted;
    }
    reply.body = std::move(body);
    reply.retry_after = parser.get()[beast::http::field::retry_after];
    reusable_ = parser.get().keep_alive();
    beast::get_lowest_layer(stream_).expires_never();
    co_return ErrorCode();
  }

  void close() override {
    closed_ = true;
    beast::get_lowest_layer(stream_).close();
  }

 protected:
  asio::awaitable<ErrorCode> connect(const Endpoints& endpoints, Deadline deadline) {
    beast::tcp_stream& tcp = beast::get_lowest_layer(stream_);
    set_deadline(tcp, deadline);
    const auto [failure, endpoint] = co_await tcp.async_connect(endpoints, kAwait);
    if (!failure) {
      ErrorCode ignored;
      tcp.socket().set_option(tcp::no_delay(true), ignored);
    }
    co_return failure;
  }

  Stream stream_;
  beast::flat_buffer buffer_{kBufferMax};
  bool closed_ = false;
};

class PlainConnection final : public ConnectionOver<beast::tcp_stream> {
 public:
  explicit PlainConnection(const asio::any_io_executor& executor) : ConnectionOver(executor) {}

  asio::awaitable<Result<void>> open(const Endpoints& endpoints, Deadline deadline) override {
    const ErrorCode failure = co_await connect(endpoints, deadline);
    co_return failure ? Result<void>(failed(failure)) : Result<void>();
  }
};

class TlsConnection final : public ConnectionOver<beast::ssl_stream<beast::tcp_stream>> {
 public:
  TlsConnection(const asio::any_io_executor& executor, asio::ssl::context& tls, std::string host)
      : ConnectionOver(executor, tls), host_(std::move(host)) {}

  asio::awaitable<Result<void>> open(const Endpoints& endpoints, Deadline deadline) override {
    ErrorCode failure = prepare();
    if (!failure) {
      failure = co_await connect(endpoints, deadline);
    }
    if (failure) {
      co_return failed(failure);
    }
    const auto [no_tls] = co_await stream_.async_handshake(asio::ssl::stream_base::client, kAwait);
    const long doubt = SSL_get_verify_result(stream_.native_handle());
    const bool asked = SSL_get_verify_mode(stream_.native_handle()) != SSL_VERIFY_NONE;
    if (no_tls && asked && doubt != X509_V_OK) {
      co_return Error{.code = Code::kFailedPrecondition,
                      .message = std::string("certificate verify failed: ") +
                                 X509_verify_cert_error_string(doubt)};
    }
    co_return no_tls ? Result<void>(failed(no_tls)) : Result<void>();
  }

 private:
  /// Says whom the certificate has to name, and to the server whose it is to show.
  ErrorCode prepare() {
    ErrorCode failure;
    stream_.set_verify_callback(asio::ssl::host_name_verification(host_), failure);
    ErrorCode is_name;
    asio::ip::make_address(host_, is_name);
    if (!failure && is_name &&
        SSL_set_tlsext_host_name(stream_.native_handle(), host_.c_str()) != 1) {
      failure = asio::error::invalid_argument;
    }
    return failure;
  }

  std::string host_;
};

/// What certificates are checked against, and what is shown to servers that ask for one.
Result<std::unique_ptr<asio::ssl::context>> make_tls(const Access& access) {
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  ErrorCode failure;
  if (access.ca.empty()) {
    tls->set_default_verify_paths(failure);
  } else {
    tls->load_verify_file(access.ca, failure);
  }
  if (failure) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "read certificates of \"" + access.ca + "\": " + failure.message()};
  }
  if (!access.certificate.empty()) {
    tls->use_certificate_chain_file(access.certificate, failure);
    if (!failure) {
      tls->use_private_key_file(access.key, asio::ssl::context::pem, failure);
    }
    if (failure) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "read the client's certificate \"" + access.certificate +
                              "\" and its key \"" + access.key + "\": " + failure.message()};
    }
  }
  tls->set_verify_mode(access.insecure ? asio::ssl::verify_none : asio::ssl::verify_peer, failure);
  return tls;
}

}  // namespace

class Client::Impl {
 public:
  Impl(const asio::any_io_executor& executor, HttpAddress address, ClientOptions options)
      : executor_(executor), address_(std::move(address)), options_(std::move(options)) {}

  asio::awaitable<Result<void>> resolve() {
    ErrorCode is_name;
    const asio::ip::address numeric = asio::ip::make_address(address_.host, is_name);
    if (!is_name) {
      endpoints_.assign(1, tcp::endpoint(numeric, address_.port));
      co_return Result<void>();
    }
    tcp::resolver resolver(executor_);
    const std::string port = std::to_string(address_.port);
    const auto [unknown, found] = co_await resolver.async_resolve(address_.host, port, kAwait);
    if (unknown) {
      co_return about(failed(unknown), "");
    }
    endpoints_.assign(found.begin(), found.end());
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> connect(std::optional<Duration> patience) {
    const auto connection = co_await open("", deadline_after(patience));
    co_return connection ? Result<void>() : Result<void>(connection.error());
  }

  asio::awaitable<Result<Reply>> exchange(Request request) {
    const Deadline deadline = deadline_after(request.patience);
    const Message message = message_of(request);
    for (;;) {
      std::unique_ptr<Connection> connection = take_idle();
      const bool kept = connection != nullptr;
      if (!kept) {
        auto opened = co_await open(request.target, deadline);
        if (!opened) {
          co_return opened.error();
        }
        connection = std::move(*opened);
      }
      Reply reply;
      busy_.insert(connection.get());
      const ErrorCode failure = co_await connection->exchange(message, request, deadline, reply);
      busy_.erase(connection.get());
      if (!failure) {
        if (options_.keep_alive && connection->reusable()) {
          idle_.push_back(std::move(connection));
        }
        co_return reply;
      }
      // The server may have closed a connection that was kept; then nothing was answered.
      const bool stopped = failure == asio::error::operation_aborted;
      if (!kept || request.once || stopped || reply.status != 0 ||
          failure == beast::error::timeout) {
        co_return about(failed(failure), request.target);
      }
    }
  }

  void stop() {
    for (Connection* each : busy_) {
      each->close();
    }
  }

 private:
  /// A connection that is new.
  asio::awaitable<Result<std::unique_ptr<Connection>>> open(std::string target, Deadline deadline) {
    if (endpoints_.empty()) {
      const Result<void> found = co_await resolve();
      if (!found) {
        co_return found.error();
      }
    }
    Result<std::unique_ptr<Connection>> connection = make();
    if (!connection) {
      co_return about(connection.error(), target);
    }
    busy_.insert(connection->get());
    const Result<void> opened = co_await (*connection)->open(endpoints_, deadline);
    busy_.erase(connection->get());
    if (!opened) {
      co_return about(opened.error(), target);
    }
    co_return connection;
  }

  Result<std::unique_ptr<Connection>> make() {
    if (!address_.tls) {
      return std::unique_ptr<Connection>(std::make_unique<PlainConnection>(executor_));
    }
    if (!tls_) {
      Result<std::unique_ptr<asio::ssl::context>> made = make_tls(options_.access);
      if (!made) {
        return made.error();
      }
      tls_ = std::move(*made);
    }
    return std::unique_ptr<Connection>(
        std::make_unique<TlsConnection>(executor_, *tls_, address_.host));
  }

  std::unique_ptr<Connection> take_idle() {
    if (idle_.empty()) {
      return nullptr;
    }
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  /// Takes the body.
  [[nodiscard]] Message message_of(Request& request) const {
    using beast::http::field;
    Message message;
    message.version(kHttp11);
    message.method_string(request.method);
    message.target(address_.base_path + request.target);
    message.set(field::host, host());
    if (!options_.keep_alive) {
      message.set(field::connection, "close");
    }
    if (!options_.user_agent.empty()) {
      message.set(field::user_agent, options_.user_agent);
    }
    if (!options_.access.api_key.empty()) {
      message.set(field::authorization, "Bearer " + options_.access.api_key);
    }
    for (const auto& [name, value] : options_.headers) {
      message.set(name, value);
    }
    if (!request.body.empty()) {
      message.set(field::content_type, "application/json");
    }
    message.body() = std::move(request.body);
    message.prepare_payload();
    return message;
  }

  /// As servers are called: without the port that the scheme has anyway.
  [[nodiscard]] std::string host() const {
    std::string authority = address_.authority();
    if (address_.port == (address_.tls ? kHttpsPort : kHttpPort)) {
      authority.resize(authority.rfind(':'));
    }
    return authority;
  }

  [[nodiscard]] Error about(const Error& why, const std::string& target) const {
    return {.code = why.code, .message = address_.url() + target + ": " + why.message};
  }

  asio::any_io_executor executor_;
  HttpAddress address_;
  ClientOptions options_;
  Endpoints endpoints_{};  ///< Of the address; empty: not asked yet.
  std::unique_ptr<asio::ssl::context> tls_{};
  std::vector<std::unique_ptr<Connection>> idle_{};
  std::set<Connection*> busy_{};  ///< Of the exchanges that run, which own them.
};

Client::Client(const asio::any_io_executor& executor, HttpAddress address, ClientOptions options)
    : impl_(std::make_unique<Impl>(executor, std::move(address), std::move(options))) {}
Client::~Client() = default;

asio::awaitable<Result<void>> Client::resolve() {
  return impl_->resolve();
}

asio::awaitable<Result<void>> Client::connect(std::optional<Duration> patience) {
  return impl_->connect(patience);
}

asio::awaitable<Result<Reply>> Client::exchange(Request request) {
  return impl_->exchange(std::move(request));
}

void Client::stop() {
  impl_->stop();
}

asio::awaitable<Result<Reply>> exchange(HttpAddress address, Request request) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Client client(executor, std::move(address), {});
  Result<Reply> reply = co_await client.exchange(std::move(request));
  co_return reply;
}

asio::awaitable<bool> port_open(HttpAddress address, Duration patience) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Client client(executor, std::move(address), {});
  const Result<void> connected = co_await client.connect(patience);
  co_return connected.has_value();
}

}  // namespace heddle::http
