#include "cli/client.h"

#include <csignal>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
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
  return "http://" + host + ":" + port;
}

Result<ServerAddress> parse_server_address(std::string_view text, std::string api_key) {
  const std::string whole(text);
  if (text.starts_with("https://")) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + whole + "\": https is not supported yet; want http://host:port"};
  }
  if (text.starts_with("http://")) {
    text.remove_prefix(7);
  }
  while (text.ends_with('/')) {
    text.remove_suffix(1);
  }
  ServerAddress address{.host = "127.0.0.1", .port = "8080", .api_key = std::move(api_key)};
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
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + whole + "\" is no address of a server; want http://host:port"};
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
  asio::awaitable<Outcome> read_events(tcp::socket& socket,
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
  request.set(http::field::host, address_.host);
  request.set(http::field::user_agent, "heddle");
  request.set(http::field::content_type, "application/json");
  if (!address_.api_key.empty()) {
    request.set(http::field::authorization, "Bearer " + address_.api_key);
  }
  request.body() = std::move(body);
  request.prepare_payload();
  const auto [lost, sent] = co_await http::async_write(socket, request, kAwait);
  if (lost) {
    co_return unreachable(lost);
  }
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  const auto [no_head, head_bytes] =
      co_await http::async_read_header(socket, buffer, parser, kAwait);
  if (no_head) {
    co_return unreachable(no_head);
  }
  const int status = static_cast<int>(parser.get().result_int());
  if (on_event != nullptr && status == 200) {
    co_return co_await read_events(socket, parser, buffer, *on_event);
  }
  const auto [broken, body_bytes] = co_await http::async_read(socket, buffer, parser, kAwait);
  if (broken) {
    co_return unreachable(broken);
  }
  if (status < 200 || status > 299) {
    co_return server_error(status, parser.get().body());
  }
  co_return parser.get().body();
}

asio::awaitable<Result<std::string>> Client::Impl::read_events(
    tcp::socket& socket,
    http::response_parser<http::string_body>& parser,
    boost::beast::flat_buffer& buffer,
    const OnEvent& on_event) {
  api::EventReader events;
  while (!parser.is_done()) {
    const auto [broken, bytes] = co_await http::async_read_some(socket, buffer, parser, kAwait);
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
