#include "gateway/upstream.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include "base/clock.h"
#include "gateway/http_parser.h"
#include "gateway/signal.h"
#include "gateway/task.h"
#include "gateway/upstream_connection.h"

namespace heddle::gateway {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr std::size_t kReadBytes = 65536;
constexpr std::size_t kHeadBytes = 512;  ///< Of most requests.
constexpr int kInterimMax = 8;           ///< Answers with a status of 1xx before the one proper.

Error unreachable(const HttpAddress& address, std::string_view doing, const ErrorCode& why) {
  return {
      .code = Code::kUnavailable,
      .message = std::string(doing) + " the engine at " + address.authority() + ": " +
                 (why == asio::error::eof ? "it closed the connection before its answer was whole"
                                          : why.message())};
}

Error not_an_answer(const HttpAddress& address, const HttpFault& fault) {
  return {.code = Code::kCorrupt,
          .message = "read from the engine at " + address.authority() +
                     ": its answer is not HTTP/1.1: " + std::string(fault.why)};
}

std::string head_text(const HttpAddress& address, const UpstreamRequest& request) {
  std::string text;
  text.reserve(kHeadBytes);
  text.append(request.method).append(" ").append(address.base_path).append(request.target);
  text.append(" HTTP/1.1\r\nHost: ").append(address.authority()).append("\r\n");
  for (const auto& [name, value] : request.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD")) {
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  text += "\r\n";
  return text;
}

/// A connection by way of the engine's host that somebody waits for, or has ceased to.
struct Opening {
  explicit Opening(asio::io_context& loop) : told(loop) {}
  std::variant<std::monostate, net::CarriedConnection, net::CarriedEnd> result{};
  Signal told;
};

/// What tells connections of one engine from those of others: where it listens, or its host and
/// model.
using Place = std::pair<std::string, std::uint64_t>;
Place place_of(const core::EngineRoute& route) {
  return route.address ? Place{route.address->host, route.address->port}
                       : Place{"host " + std::to_string(route.host.value()), route.model.value()};
}

}  // namespace

bool is_same_field(std::string_view a, std::string_view b) {
  return beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

std::string_view field_value(const HttpFields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (is_same_field(key, name)) {
      return value;
    }
  }
  return {};
}

HttpFields end_to_end(HttpFields fields) {
  constexpr std::array<std::string_view, 14> kOfConnection{"connection",
                                                           "keep-alive",
                                                           "proxy-connection",
                                                           "proxy-authenticate",
                                                           "proxy-authorization",
                                                           "proxy-authentication-info",
                                                           "te",
                                                           "trailer",
                                                           "transfer-encoding",
                                                           "upgrade",
                                                           "expect",
                                                           "host",
                                                           "content-length",
                                                           "http2-settings"};
  std::vector<std::string> named;
  for (const auto& [name, value] : fields) {
    if (is_same_field(name, "connection")) {
      for (const auto& option : http::token_list({value.data(), value.size()})) {
        if (!beast::iequals(option, "keep-alive") && !beast::iequals(option, "close")) {
          named.emplace_back(option.data(), option.size());
        }
      }
    }
  }
  std::erase_if(fields, [&](const auto& field) {
    const auto same = [&field](std::string_view name) { return is_same_field(name, field.first); };
    return std::any_of(kOfConnection.begin(), kOfConnection.end(), same) ||
           std::any_of(named.begin(), named.end(), same);
  });
  return fields;
}

HttpFields passed_on(HttpFields fields) {
  std::erase_if(fields, [](const auto& field) {
    constexpr std::string_view kCors = "access-control-";
    return is_same_field(field.first, "x-request-id") ||
           is_same_field(std::string_view(field.first).substr(0, kCors.size()), kCors);
  });
  return fields;
}

bool UpstreamHead::is_event_stream() const {
  const std::string_view type = field_value(headers, "content-type");
  return is_same_field(type.substr(0, std::string_view(kEventStream).size()), kEventStream);
}

bool UpstreamHead::is_plain() const {
  const std::string_view encoding = field_value(headers, "content-encoding");
  return encoding.empty() || is_same_field(encoding, "identity");
}

/// What the pool and its exchanges share; outlives whichever ends first.
class UpstreamConnections : public std::enable_shared_from_this<UpstreamConnections> {
 public:
  UpstreamConnections(asio::io_context& io, UpstreamPool::Options how)
      : loop(io), options(std::move(how)), sweep_(io) {}

  /// A connection that was kept and is still open; null where there is none.
  std::unique_ptr<UpstreamConnection> take(const core::EngineRoute& route) {
    const auto found = kept_.find(place_of(route));
    while (found != kept_.end() && !found->second.empty()) {
      std::unique_ptr<UpstreamConnection> connection = std::move(found->second.back());
      found->second.pop_back();
      if (!connection->is_stale()) {
        return connection;
      }
    }
    return nullptr;
  }

  void keep(const core::EngineRoute& route, std::unique_ptr<UpstreamConnection> connection) {
    std::deque<std::unique_ptr<UpstreamConnection>>& kept = kept_[place_of(route)];
    if (closed_ || kept.size() >= options.idle_max) {
      return;
    }
    connection->idle_since = steady_now();
    connection->rest();
    kept.push_back(std::move(connection));
    if (!sweeping_) {
      sweep();
    }
  }

  [[nodiscard]] std::size_t idle() const {
    std::size_t count = 0;
    for (const auto& [place, kept] : kept_) {
      count += kept.size();
    }
    return count;
  }

  void close() {
    closed_ = true;
    kept_.clear();
    sweep_.cancel();
  }

  asio::io_context& loop;
  const UpstreamPool::Options options;
  /// Where all exchanges read to: it stays in the processor's cache, as one for each would not.
  std::vector<char> scratch = std::vector<char>(kReadBytes);

 private:
  /// Closes what was kept for too long, and comes back while there is more.
  void sweep() {
    const Instant now = steady_now();
    for (auto at = kept_.begin(); at != kept_.end();) {
      std::deque<std::unique_ptr<UpstreamConnection>>& kept = at->second;
      while (!kept.empty() && now - kept.front()->idle_since >= options.idle_timeout) {
        kept.pop_front();
      }
      at = kept.empty() ? kept_.erase(at) : std::next(at);
    }
    sweeping_ = !kept_.empty();
    if (sweeping_) {
      sweep_.expires_after(options.idle_timeout);
      sweep_.async_wait([weak = weak_from_this()](const ErrorCode& cancelled) {
        const std::shared_ptr<UpstreamConnections> self = weak.lock();
        if (!cancelled && self) {
          self->sweep();
        }
      });
    }
  }

  /// The latest used last.
  std::map<Place, std::deque<std::unique_ptr<UpstreamConnection>>> kept_{};
  asio::steady_timer sweep_;
  bool sweeping_ = false;
  bool closed_ = false;
};

namespace {

class Exchange final : public UpstreamExchange {
  /// Head and body.
  using Request = std::array<asio::const_buffer, 2>;

 public:
  Exchange(std::shared_ptr<UpstreamConnections> pool, core::EngineRoute route)
      : pool_(std::move(pool)),
        route_(std::move(route)),
        address_(route_.address.value_or(HttpAddress{})) {}
  ~Exchange() override { release(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Task<Result<void>> send(const UpstreamRequest& request) override {
    request_ = &request;
    connection_ = pool_->take(route_);
    reused_ = connection_ != nullptr;
    address_ = reused_ ? connection_->address : address_;
    return reused_ ? write() : connect_and_write();
  }

  Task<Result<News>> receive(Duration patience) override {
    if (closed_ || !connection_) {
      co_return cancelled();
    }
    const bool stirred = co_await connection_->readable(patience);
    connection_->settle();
    if (closed_) {
      co_return cancelled();
    }
    if (!stirred) {
      co_return News::kNone;
    }
    ErrorCode failure;
    const std::size_t bytes =
        connection_->socket().read_some(asio::buffer(pool_->scratch), failure);
    if (failure == asio::error::would_block) {
      co_return News::kNone;
    }
    if (failure && reused_ && !begun_) {
      const Result<void> again = co_await connect_and_write();
      if (!again) {
        co_return again.error();
      }
      co_return News::kNone;
    }
    begun_ = begun_ || bytes > 0;
    if (failure && connection_->carried_end() != nullptr) {
      cut_off_ = connection_->carried_end()->cut;
      failure = asio::error::connection_reset;  // Not an answer that ends with its connection.
    }
    if (const Result<void> right = take_in({pool_->scratch.data(), bytes}, failure); !right) {
      connection_->close();
      co_return right.error();
    }
    co_return News::kSome;
  }

  [[nodiscard]] UpstreamHead* head() override { return head_ ? &*head_ : nullptr; }
  [[nodiscard]] std::string take_body() override {
    return parser_ ? std::exchange(parser_->body(), {}) : std::string();
  }
  [[nodiscard]] bool complete() const override { return head_ && parser_->is_done(); }
  [[nodiscard]] const HttpAddress& address() const override { return address_; }
  [[nodiscard]] bool cut_off() const override { return cut_off_; }

  void close() override {
    closed_ = true;
    if (opening_) {
      opening_->told.notify();
    }
    if (connection_) {
      connection_->close();
    }
  }

 private:
  [[nodiscard]] Error cancelled() const {
    return {.code = Code::kCancelled,
            .message = "the exchange with the engine at " + address_.authority() + " was ended"};
  }

  Task<Result<void>> connect() {
    if (!route_.address) {
      const Result<void> carried = co_await connect_by_host();
      co_return carried;
    }
    connection_ = std::make_unique<UpstreamConnection>(pool_->loop);
    UpstreamConnection& connection = *connection_;
    connection.close_after(pool_->options.connect_timeout);
    ErrorCode failure;
    const asio::ip::address numeric = asio::ip::make_address(address_.host, failure);
    if (!failure) {
      const auto [refused] = co_await connection.connecting().async_connect(
          tcp::endpoint(numeric, address_.port), kAwait);
      failure = refused;
    } else {
      tcp::resolver resolver(pool_->loop);
      const auto [unknown, found] =
          co_await resolver.async_resolve(address_.host, std::to_string(address_.port), kAwait);
      failure = unknown;
      if (!failure && !closed_) {
        connection.close_after(pool_->options.connect_timeout);
        const auto [refused, endpoint] =
            co_await asio::async_connect(connection.connecting(), found, kAwait);
        failure = refused;
      }
    }
    connection.settle();
    if (closed_) {
      co_return cancelled();
    }
    if (failure) {
      failure = failure == asio::error::operation_aborted ? asio::error::timed_out : failure;
      co_return unreachable(address_, "connect to", failure);
    }
    connection.connected(address_);
    co_return Result<void>();
  }

  /// By way of the engine's host.
  Task<Result<void>> connect_by_host() {
    connection_ = std::make_unique<UpstreamConnection>(pool_->loop);
    opening_ = std::make_shared<Opening>(pool_->loop);
    pool_->options.carry(route_.host, route_.model, [opening = opening_](auto result) {
      std::visit([&](auto& what) { opening->result = std::move(what); }, result);
      opening->told.notify();
    });
    const std::shared_ptr<Opening> opening = opening_;
    co_await opening->told.wait(pool_->options.connect_timeout);
    if (closed_) {
      co_return cancelled();
    }
    if (auto* carried = std::get_if<net::CarriedConnection>(&opening->result)) {
      connection_->connected(std::move(*carried));
      address_ = connection_->address;
      co_return Result<void>();
    }
    const auto* const end = std::get_if<net::CarriedEnd>(&opening->result);
    cut_off_ = end == nullptr || end->cut;
    co_return Error{
        .code = Code::kUnavailable,
        .message = end != nullptr ? end->why.message : "the engine's host did not answer in time"};
  }

  /// A failure to send is no failure yet: the engine may have answered without reading all of it.
  /// Reading will tell.
  Task<Result<void>> write() {
    begin_parser();
    head_bytes_ = head_text(address_, *request_);
    beast::buffers_suffix left(Request{asio::buffer(head_bytes_), asio::buffer(request_->body)});
    const ErrorCode failure = connection_->socket().send_some(left);
    written_ = !failure && asio::buffer_size(left) == 0;
    if (failure || written_) {
      return Result<void>();
    }
    return write_rest(left);
  }

  Task<Result<void>> write_rest(beast::buffers_suffix<Request> left) {
    connection_->close_after(pool_->options.send_timeout);
    ErrorCode failure;
    while (!failure && asio::buffer_size(left) > 0) {
      co_await connection_->socket().writable();
      failure = connection_->socket().send_some(left);
    }
    connection_->settle();
    written_ = !failure;
    co_return closed_ ? Result<void>(cancelled()) : Result<void>();
  }

  Task<Result<void>> connect_and_write() {
    reused_ = false;
    const Result<void> connected = co_await connect();
    if (!connected) {
      co_return connected.error();
    }
    const Result<void> written = co_await write();
    co_return written;
  }

  /// Parses what was read: `news`, and before it what could not be parsed without. `failure` is
  /// what the read ended with.
  Result<void> take_in(std::string_view news, const ErrorCode& failure) {
    beast::flat_buffer& buffer = connection_->buffer;
    const bool joins = buffer.size() > 0;
    if (joins) {
      keep(news);
      news = {static_cast<const char*>(buffer.data().data()), buffer.size()};
    }
    std::string_view left = news;
    const Result<void> right = parse(left, failure);
    if (joins) {
      buffer.consume(news.size() - left.size());
    } else {
      keep(left);
    }
    if (right && complete()) {
      reusable_ = written_ && !failure && buffer.size() == 0 && parser_->keep_alive();
    }
    return right;
  }

  void keep(std::string_view bytes) {
    beast::flat_buffer& buffer = connection_->buffer;
    buffer.commit(
        asio::buffer_copy(buffer.prepare(bytes.size()), asio::buffer(bytes.data(), bytes.size())));
  }

  /// Takes off `bytes` what could be parsed.
  Result<void> parse(std::string_view& bytes, const ErrorCode& failure) {
    do {
      if (parser_->is_done() && parser_->status() / 100 == 1) {
        if (parser_->status() == 101 || ++interim_ > kInterimMax) {
          return not_an_answer(address_, {.why = "it goes on with answers of status 1xx"});
        }
        begin_parser();  // The answer proper follows.
      }
      parser_->put(bytes);
      if (parser_->fault()) {
        return not_an_answer(address_, *parser_->fault());
      }
    } while (parser_->is_done() && parser_->status() / 100 == 1 && !bytes.empty());
    if (!head_ && parser_->is_head_done() && parser_->status() / 100 != 1) {
      take_head();
    }
    const bool whole = complete() || (failure == asio::error::eof && parser_->put_end());
    if (failure && !whole) {
      return unreachable(address_, "read from", failure);
    }
    return {};
  }

  void begin_parser() {
    parser_.emplace(request_->method == "HEAD",
                    HttpParser::Bounds{.head = pool_->options.header_max});
  }

  void take_head() {
    UpstreamHead head{.status = parser_->status(),
                      .reason = std::move(parser_->reason()),
                      .headers = end_to_end(std::move(parser_->headers()))};
    if (const auto length = parser_->content_length()) {
      head.length = *length;
    }
    head_ = std::move(head);
  }

  /// Gives the connection back, where another request can follow on it.
  void release() {
    if (connection_ && reusable_ && !closed_) {
      pool_->keep(route_, std::move(connection_));
    }
  }

  std::shared_ptr<UpstreamConnections> pool_;
  const core::EngineRoute route_;
  HttpAddress address_;
  std::shared_ptr<Opening> opening_{};  ///< Once it was connected to by way of its host.
  const UpstreamRequest* request_ = nullptr;
  std::unique_ptr<UpstreamConnection> connection_{};
  std::optional<ResponseParser> parser_{};
  std::optional<UpstreamHead> head_{};
  std::string head_bytes_{};
  int interim_ = 0;        ///< Answers of status 1xx.
  bool reused_ = false;    ///< The connection had served others.
  bool begun_ = false;     ///< Something of an answer has come.
  bool written_ = false;   ///< The request, all of it.
  bool reusable_ = false;  ///< The connection is fit for another request.
  bool closed_ = false;
  bool cut_off_ = false;  ///< The way to its host failed.
};

}  // namespace

UpstreamPool::UpstreamPool(asio::io_context& loop, Options options)
    : connections_(std::make_shared<UpstreamConnections>(loop, std::move(options))) {}

UpstreamPool::~UpstreamPool() {
  connections_->close();
}

std::unique_ptr<UpstreamExchange> UpstreamPool::exchange(core::EngineRoute route) {
  HEDDLE_CHECK(route.address || connections_->options.carry);
  return std::make_unique<Exchange>(connections_, std::move(route));
}

core::EngineRoute UpstreamPool::route(ModelId model,
                                      DeviceId device,
                                      const HttpAddress& address) const {
  core::EngineRoute route{.model = model, .host = host_of(device)};
  if (!connections_->options.carry) {
    route.address = address;
  }
  return route;
}

std::size_t UpstreamPool::idle() const {
  return connections_->idle();
}

}  // namespace heddle::gateway
