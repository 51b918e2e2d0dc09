#include "bench/http_client.h"

#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

namespace heddle::bench {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 16U << 10U;

using Request = http::request<http::string_body>;
using Addresses = tcp::resolver::results_type;

/// One connection, which may serve several requests.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual asio::awaitable<ErrorCode> open(const Addresses& addresses, Duration patience) = 0;
  /// `reply` is whole when there is no error.
  virtual asio::awaitable<ErrorCode> exchange(const Request& request,
                                              const HttpClient::OnPart& on_part,
                                              Duration patience,
                                              HttpReply& reply) = 0;
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

  asio::awaitable<ErrorCode> exchange(const Request& request,
                                      const HttpClient::OnPart& on_part,
                                      Duration patience,
                                      HttpReply& reply) override {
    beast::get_lowest_layer(stream_).expires_after(patience);
    reusable_ = false;
    const auto [unsent, sent] = co_await http::async_write(stream_, request, kAwait);
    if (unsent) {
      co_return unsent;
    }
    http::response_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    const auto [headless, head] =
        co_await http::async_read_header(stream_, buffer_, parser, kAwait);
    if (headless) {
      co_return headless;
    }
    reply.status = static_cast<int>(parser.get().result_int());
    std::string& body = parser.get().body();
    const bool in_parts = on_part != nullptr && reply.status == 200;
    while (!parser.is_done()) {
      const auto [cut, bytes] = co_await http::async_read_some(stream_, buffer_, parser, kAwait);
      if (cut) {
        co_return cut;
      }
      if (in_parts && !body.empty()) {
        on_part(body);
        body.clear();
      }
    }
    reply.body = std::move(body);
    reusable_ = parser.get().keep_alive();
    beast::get_lowest_layer(stream_).expires_never();
    co_return ErrorCode();
  }

 protected:
  Stream stream_;
  beast::flat_buffer buffer_{kReadBytes << 8U};
};

class PlainConnection final : public ConnectionOver<beast::tcp_stream> {
 public:
  explicit PlainConnection(asio::io_context& loop) : ConnectionOver(loop) {}

  asio::awaitable<ErrorCode> open(const Addresses& addresses, Duration patience) override {
    stream_.expires_after(patience);
    const auto [failure, address] = co_await stream_.async_connect(addresses, kAwait);
    if (!failure) {
      stream_.socket().set_option(tcp::no_delay(true));
    }
    co_return failure;
  }
};

class TlsConnection final : public ConnectionOver<beast::ssl_stream<beast::tcp_stream>> {
 public:
  TlsConnection(asio::io_context& loop, asio::ssl::context& tls, std::string host)
      : ConnectionOver(loop, tls), host_(std::move(host)) {}

  asio::awaitable<ErrorCode> open(const Addresses& addresses, Duration patience) override {
    beast::tcp_stream& tcp = beast::get_lowest_layer(stream_);
    tcp.expires_after(patience);
    stream_.set_verify_callback(asio::ssl::host_name_verification(host_));
    if (SSL_set_tlsext_host_name(stream_.native_handle(), host_.c_str()) != 1) {
      co_return ErrorCode(asio::error::invalid_argument);
    }
    const auto [refused, address] = co_await tcp.async_connect(addresses, kAwait);
    if (refused) {
      co_return refused;
    }
    tcp.socket().set_option(tcp::no_delay(true));
    const auto [untrusted] =
        co_await stream_.async_handshake(asio::ssl::stream_base::client, kAwait);
    co_return untrusted;
  }

 private:
  std::string host_;
};

}  // namespace

class HttpClient::Impl {
 public:
  Impl(asio::io_context& loop, Endpoint endpoint, Duration patience)
      : loop_(loop), endpoint_(std::move(endpoint)), patience_(patience) {
    if (endpoint_.tls) {
      tls_.emplace(asio::ssl::context::tls_client);
      tls_->set_default_verify_paths();
      tls_->set_verify_mode(asio::ssl::verify_peer);
    }
  }

  asio::awaitable<Result<void>> resolve() {
    tcp::resolver resolver(loop_);
    const auto [unknown, found] =
        co_await resolver.async_resolve(endpoint_.host, endpoint_.port, kAwait);
    if (unknown) {
      co_return failed(unknown);
    }
    addresses_ = found;
    co_return Result<void>();
  }

  [[nodiscard]] Request request(http::verb verb, const std::string& path, std::string body) const {
    Request made(verb, endpoint_.path + path, 11);
    made.set(http::field::host, endpoint_.host);
    made.set(http::field::user_agent, "heddle-bench");
    if (verb == http::verb::post) {
      made.set(http::field::content_type, "application/json");
    }
    if (!endpoint_.api_key.empty()) {
      made.set(http::field::authorization, "Bearer " + endpoint_.api_key);
    }
    made.body() = std::move(body);
    made.prepare_payload();
    return made;
  }

  asio::awaitable<Result<HttpReply>> ask(Request request, OnPart on_part) {
    for (;;) {
      std::unique_ptr<Connection> connection = take_idle();
      const bool kept = connection != nullptr;
      if (!kept) {
        connection = make();
        const ErrorCode refused = co_await connection->open(addresses_, patience_);
        if (refused) {
          co_return failed(refused);
        }
      }
      HttpReply reply;
      const ErrorCode failure = co_await connection->exchange(request, on_part, patience_, reply);
      if (!failure) {
        if (connection->reusable()) {
          idle_.push_back(std::move(connection));
        }
        co_return reply;
      }
      // The server may have closed a connection that was kept; then nothing was answered.
      if (!kept || reply.status != 0 || failure == beast::error::timeout) {
        co_return failed(failure);
      }
    }
  }

 private:
  std::unique_ptr<Connection> take_idle() {
    if (idle_.empty()) {
      return nullptr;
    }
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  std::unique_ptr<Connection> make() {
    if (tls_) {
      return std::make_unique<TlsConnection>(loop_, *tls_, endpoint_.host);
    }
    return std::make_unique<PlainConnection>(loop_);
  }

  [[nodiscard]] Error failed(const ErrorCode& why) const {
    return {.code = Code::kUnavailable, .message = endpoint_.url() + ": " + why.message()};
  }

  asio::io_context& loop_;
  Endpoint endpoint_;
  Duration patience_;
  std::optional<asio::ssl::context> tls_{};
  Addresses addresses_{};
  std::vector<std::unique_ptr<Connection>> idle_{};
};

HttpClient::HttpClient(asio::io_context& loop, Endpoint endpoint, Duration patience)
    : impl_(std::make_unique<Impl>(loop, std::move(endpoint), patience)) {}
HttpClient::~HttpClient() = default;

asio::awaitable<Result<void>> HttpClient::resolve() {
  return impl_->resolve();
}

asio::awaitable<Result<HttpReply>> HttpClient::post(std::string path,
                                                    std::string body,
                                                    OnPart on_part) {
  return impl_->ask(impl_->request(http::verb::post, path, std::move(body)), std::move(on_part));
}

asio::awaitable<Result<HttpReply>> HttpClient::get(std::string path) {
  return impl_->ask(impl_->request(http::verb::get, path, ""), nullptr);
}

}  // namespace heddle::bench
