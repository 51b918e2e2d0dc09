#include "cli/client.h"

#include <csignal>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "api/event_reader.h"
#include "spec/json.h"

namespace heddle::cli {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr auto kWatchInterval = 150ms;

/// What the server said was wrong, or the whole body if it did not say it in JSON.
Error server_error(int status, const std::string& body) {
  const Code code = status == 404 ? Code::kNotFound : Code::kFailedPrecondition;
  const Result<spec::Json> json = spec::parse_json(body, "answer");
  if (json) {
    const spec::Json* error = json->find("error");
    const spec::Json* message = error != nullptr ? error->find("message") : nullptr;
    if (message != nullptr && message->as<std::string>() != nullptr) {
      return {.code = code, .message = *message->as<std::string>()};
    }
  }
  return {.code = code, .message = "status " + std::to_string(status) + ": " + body.substr(0, 500)};
}

/// A model's progress of loading in the answer of GET /v1/models/{id}.
std::optional<double> progress_in(const std::string& body) {
  const Result<spec::Json> json = spec::parse_json(body, "model");
  const spec::Json* status = json ? json->find("status") : nullptr;
  const spec::Json* progress = status != nullptr ? status->find("progress") : nullptr;
  if (progress == nullptr) {
    return std::nullopt;
  }
  if (const auto* whole = progress->as<std::int64_t>()) {
    return static_cast<double>(*whole);
  }
  const auto* part = progress->as<double>();
  return part != nullptr ? std::optional(*part) : std::nullopt;
}

}  // namespace

std::string ServerAddress::url() const {
  return (tls ? "https://" : "http://") + host + ":" + port;
}

Result<ServerAddress> parse_server_address(std::string_view text, ServerAccess access) {
  const std::string whole(text);
  const bool tls = text.starts_with("https://");
  if (tls || text.starts_with("http://")) {
    text.remove_prefix(tls ? 8 : 7);
  }
  while (text.ends_with('/')) {
    text.remove_suffix(1);
  }
  ServerAddress address{
      .host = "127.0.0.1", .port = tls ? "443" : "8080", .tls = tls, .access = std::move(access)};
  const std::size_t colon = text.rfind(':');
  const std::string_view host = text.substr(0, colon);
  if (!host.empty()) {
    address.host = host;
  }
  if (colon != std::string_view::npos) {
    address.port = text.substr(colon + 1);
  }
  const bool number =
      !address.port.empty() && address.port.find_first_not_of("0123456789") == std::string::npos;
  if (!number || address.host.find('/') != std::string::npos) {
    return Error{
        .code = Code::kInvalidArgument,
        .message = "\"" + whole +
                   "\" is no address of a server; want http://host:port or https://host:port"};
  }
  return address;
}

class Client::Impl {
 public:
  explicit Impl(ServerAddress address) : address_(std::move(address)) {}

  /// Runs one request to its end. `on_event` is null for an answer as a whole, which is returned.
  Result<std::string> run(http::verb verb,
                          const std::string& path,
                          const std::string& body,
                          const OnEvent* on_event);

  std::string watched{};
  std::function<void(std::optional<double>)> show{};

 private:
  using Outcome = Result<std::string>;

  asio::awaitable<Outcome> exchange(http::verb verb,
                                    std::string path,
                                    std::string body,
                                    const OnEvent* on_event,
                                    tcp::socket& socket);
  asio::awaitable<Outcome> exchange_safely(http::request<http::string_body>& request,
                                           const OnEvent* on_event,
                                           tcp::socket& socket);
  template <class Stream>
  asio::awaitable<Outcome> exchange_over(Stream& stream,
                                         http::request<http::string_body>& request,
                                         const OnEvent* on_event);
  template <class Stream>
  asio::awaitable<Outcome> read_events(Stream& stream,
                                       http::response_parser<http::string_body>& parser,
                                       boost::beast::flat_buffer& buffer,
                                       const OnEvent& on_event);
  asio::awaitable<void> main(http::verb verb,
                             std::string path,
                             std::string body,
                             const OnEvent* on_event,
                             Outcome& outcome);
  asio::awaitable<void> watch();
  [[nodiscard]] Error unreachable(const ErrorCode& why) const;

  ServerAddress address_;
  asio::io_context loop_{1};
  asio::steady_timer watch_timer_{loop_};
  bool watching_ = false;
  bool interrupted_ = false;
};

Error Client::Impl::unreachable(const ErrorCode& why) const {
  if (interrupted_) {
    return {.code = Code::kCancelled, .message = "interrupted"};
  }
  return {.code = Code::kUnavailable,
          .message = "cannot reach " + address_.url() + ": " + why.message() +
                     "; is \"heddle serve\" running there? (--url or HEDDLE_HOST say where)"};
}

asio::awaitable<Result<std::string>> Client::Impl::exchange(http::verb verb,
                                                            std::string path,
                                                            std::string body,
                                                            const OnEvent* on_event,
                                                            tcp::socket& socket) {
  tcp::resolver resolver(loop_);
  const auto [unknown, found] =
      co_await resolver.async_resolve(address_.host, address_.port, kAwait);
  if (unknown) {
    co_return unreachable(unknown);
  }
  const auto [refused, endpoint] = co_await asio::async_connect(socket, found, kAwait);
  if (refused) {
    co_return unreachable(refused);
  }
  http::request<http::string_body> request(verb, path, 11);
  request.set(http::field::host, address_.host + ":" + address_.port);
  request.set(http::field::user_agent, "heddle");
  request.set(http::field::content_type, "application/json");
  if (!address_.access.api_key.empty()) {
    request.set(http::field::authorization, "Bearer " + address_.access.api_key);
  }
  request.body() = std::move(body);
  request.prepare_payload();
  if (address_.tls) {
    co_return co_await exchange_safely(request, on_event, socket);
  }
  co_return co_await exchange_over(socket, request, on_event);
}

asio::awaitable<Result<std::string>> Client::Impl::exchange_safely(
    http::request<http::string_body>& request, const OnEvent* on_event, tcp::socket& socket) {
  const ServerAccess& access = address_.access;
  asio::ssl::context tls(asio::ssl::context::tls_client);
  ErrorCode failure;
  if (access.ca.empty()) {
    tls.set_default_verify_paths(failure);
  } else {
    tls.load_verify_file(access.ca, failure);
  }
  if (failure) {
    co_return Error{.code = Code::kInvalidArgument,
                    .message = "read certificates of \"" + access.ca + "\": " + failure.message()};
  }
  asio::ssl::stream<tcp::socket&> stream(socket, tls);
  if (!access.insecure) {
    stream.set_verify_mode(asio::ssl::verify_peer, failure);
    stream.set_verify_callback(asio::ssl::host_name_verification(address_.host), failure);
  }
  asio::ip::make_address(address_.host, failure);
  if (failure) {  // It is a name, which the server may want to know.
    SSL_set_tlsext_host_name(stream.native_handle(), address_.host.c_str());
  }
  const auto [no_tls] = co_await stream.async_handshake(asio::ssl::stream_base::client, kAwait);
  const long doubt = SSL_get_verify_result(stream.native_handle());
  if (no_tls && doubt != X509_V_OK && !access.insecure) {
    co_return Error{.code = Code::kUnavailable,
                    .message = "cannot trust " + address_.url() + ": " +
                               X509_verify_cert_error_string(doubt) +
                               "; --ca FILE names who vouches for it, --insecure asks nobody"};
  }
  if (no_tls) {
    co_return unreachable(no_tls);
  }
  co_return co_await exchange_over(stream, request, on_event);
}

template <class Stream>
asio::awaitable<Result<std::string>> Client::Impl::exchange_over(
    Stream& stream, http::request<http::string_body>& request, const OnEvent* on_event) {
  const auto [lost, sent] = co_await http::async_write(stream, request, kAwait);
  if (lost) {
    co_return unreachable(lost);
  }
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  const auto [no_head, head_bytes] =
      co_await http::async_read_header(stream, buffer, parser, kAwait);
  if (no_head) {
    co_return unreachable(no_head);
  }
  const int status = static_cast<int>(parser.get().result_int());
  if (on_event != nullptr && status == 200) {
    co_return co_await read_events(stream, parser, buffer, *on_event);
  }
  const auto [broken, body_bytes] = co_await http::async_read(stream, buffer, parser, kAwait);
  if (broken) {
    co_return unreachable(broken);
  }
  if (status < 200 || status > 299) {
    co_return server_error(status, parser.get().body());
  }
  co_return parser.get().body();
}

template <class Stream>
asio::awaitable<Result<std::string>> Client::Impl::read_events(
    Stream& stream,
    http::response_parser<http::string_body>& parser,
    boost::beast::flat_buffer& buffer,
    const OnEvent& on_event) {
  api::EventReader events;
  while (!parser.is_done()) {
    const auto [broken, bytes] = co_await http::async_read_some(stream, buffer, parser, kAwait);
    if (broken) {
      co_return unreachable(broken);
    }
    std::string& body = parser.get().body();
    for (const std::string& data : events.push(body)) {
      on_event(data);
    }
    body.clear();
  }
  co_return std::string();
}

asio::awaitable<void> Client::Impl::main(http::verb verb,
                                         std::string path,
                                         std::string body,
                                         const OnEvent* on_event,
                                         Outcome& outcome) {
  tcp::socket socket(loop_);
  asio::signal_set interrupt(loop_, SIGINT);
  interrupt.async_wait([this, &socket](const ErrorCode& stopped, int) {
    if (!stopped) {
      interrupted_ = true;
      ErrorCode ignored;
      socket.close(ignored);
    }
  });
  outcome = co_await exchange(verb, std::move(path), std::move(body), on_event, socket);
  interrupt.cancel();
  watching_ = false;
  watch_timer_.cancel();
}

asio::awaitable<void> Client::Impl::watch() {
  bool shown = false;
  while (watching_) {
    watch_timer_.expires_after(kWatchInterval);
    co_await watch_timer_.async_wait(kAwait);
    if (!watching_) {
      break;
    }
    tcp::socket socket(loop_);
    const Outcome model =
        co_await exchange(http::verb::get, "/v1/models/" + watched, "", nullptr, socket);
    const std::optional<double> progress = model ? progress_in(*model) : std::nullopt;
    if (progress || shown) {
      show(progress);
    }
    shown = progress.has_value();
  }
  if (shown) {
    show(std::nullopt);
  }
}

Result<std::string> Client::Impl::run(http::verb verb,
                                      const std::string& path,
                                      const std::string& body,
                                      const OnEvent* on_event) {
  Outcome outcome = std::string();
  interrupted_ = false;
  watching_ = show != nullptr;
  const auto rethrow = [](const std::exception_ptr& failure) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  };
  asio::co_spawn(loop_, main(verb, path, body, on_event, outcome), rethrow);
  if (watching_) {
    asio::co_spawn(loop_, watch(), rethrow);
  }
  loop_.restart();
  loop_.run();
  return outcome;
}

Client::Client(ServerAddress address) : impl_(std::make_unique<Impl>(std::move(address))) {}
Client::~Client() = default;

Result<std::string> Client::get(const std::string& path) {
  return impl_->run(http::verb::get, path, "", nullptr);
}

Result<std::string> Client::post(const std::string& path, const std::string& body) {
  return impl_->run(http::verb::post, path, body, nullptr);
}

Result<void> Client::stream(const std::string& path,
                            const std::string& body,
                            const OnEvent& on_event) {
  const Result<std::string> done = impl_->run(http::verb::post, path, body, &on_event);
  if (!done) {
    return done.error();
  }
  return {};
}

void Client::watch_loading(std::string model, std::function<void(std::optional<double>)> show) {
  impl_->watched = std::move(model);
  impl_->show = std::move(show);
}

}  // namespace heddle::cli
