#include "gateway/http_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "api/error_text.h"
#include "gateway/deadline.h"
#include "gateway/http_exchange.h"
#include "gateway/http_parser.h"
#include "gateway/send_at_once.h"
#include "gateway/task.h"
#include "gateway/upstream.h"
#include "gateway/watched_socket.h"

namespace heddle::gateway {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kReadBytes = 8192;
constexpr std::size_t kBodyReadBytes = 65536;
constexpr std::size_t kPipelinedBytesMax = 64U << 10U;
constexpr std::uint64_t kBodyBytesPerSecond = 64U << 10U;  ///< A slower client is given up.
constexpr Duration kLinger = 2s;
constexpr std::size_t kLingerBytes = 16U << 20U;
constexpr std::size_t kRequestIdMax = 128;
constexpr std::size_t kUsualHead = 512;  ///< Of an answer [bytes].
constexpr const char* kServerName = "heddle";
constexpr const char* kRequestIdField = "X-Request-Id";

bool sane_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdMax && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

/// 60 bits: such an id is copied a few times, and strings of 15 letters need no memory of their
/// own.
std::string draw_id(Rng& rng) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id(15, '0');
  std::uint64_t bits = rng.next();
  for (char& digit : id) {
    digit = kDigits[bits & 15U];
    bits >>= 4U;
  }
  return id;
}

Error client_gone(const ErrorCode& why) {
  return {.code = Code::kCancelled, .message = "send to client: " + why.message()};
}

std::string peer_of(const tcp::socket& socket) {
  ErrorCode gone;
  const tcp::endpoint peer = socket.remote_endpoint(gone);
  return gone ? std::string() : peer.address().to_string();
}

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

asio::const_buffer bytes_of(std::string_view text) {
  return {text.data(), text.size()};
}

/// What goes to the network together: a head, the size of a chunk, a part, and what follows on it.
/// Parts are not copied for that.
using Pieces = std::array<asio::const_buffer, 4>;
/// "7c2\r\n".
using ChunkSize = std::array<char, 18>;

/// One client's connection. Kept alive by its coroutine.
class Connection final : public HttpConnection,
                         public HttpExchange,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ConnectionShared> shared,
             tcp::socket socket,
             bool too_many,
             std::string peer)
      : shared_(std::move(shared)),
        watched_(std::make_shared<WatchedSocket>(std::move(socket), [this] { look_ahead(); })),
        socket_(watched_->socket()),
        deadline_(shared_->loop, [this] { give_up(); }),
        peer_(peer.empty() ? peer_of(socket_) : std::move(peer)),
        too_many_(too_many) {
    shared_->open.insert(this);
  }
  ~Connection() override {
    watched_->leave();
    shared_->open.erase(this);
    shared_->closed();
  }

  static Task<void> run(std::shared_ptr<Connection> self);
  void wind_down() override {
    if (idle_) {
      close();
    }
  }
  void close() override { watched_->close(); }

  [[nodiscard]] const HttpRequest& request() const override { return request_; }
  Task<Result<void>> respond(HttpResponse response) override;
  Task<Result<void>> begin(StreamHead head, std::string part) override;
  Task<Result<void>> send_part(std::string part) override;
  Task<Result<void>> end(std::string part) override;
  void drop() override {
    keep_alive_ = false;
    close();
  }
  [[nodiscard]] bool gone() const override { return gone_; }
  void on_gone(std::function<void()> notify) override { notify_gone_ = std::move(notify); }

 private:
  Task<bool> read_request();
  enum class Part : std::uint8_t { kHead, kAll };
  static bool has(const RequestParser& parser, Part part) {
    return part == Part::kHead ? parser.is_header_done() : parser.is_done();
  }
  Task<ErrorCode> read(RequestParser& parser, Part part);
  Task<ErrorCode> read_rest(RequestParser& parser, Part part);
  ErrorCode parse_buffered(RequestParser& parser);
  Task<void> refuse(api::ApiError error);
  Task<void> linger();
  Task<Result<void>> write(Pieces pieces);
  Task<Result<void>> write_rest(boost::beast::buffers_suffix<Pieces> left);

  std::optional<api::ApiError> let_in();
  [[nodiscard]] std::optional<api::ApiError> complaint(const ErrorCode& failure) const;
  void take_head(const RequestParser& parser);
  ErrorCode read_some(std::size_t most);
  void look_ahead();
  void watch();
  void give_up();
  void give_up_after(Duration patience) { deadline_.set(patience); }
  void be_patient() { deadline_.clear(); }
  void mark_gone();
  void add_head(std::string& text, const StreamHead& head) const;
  Pieces frame(ChunkSize& size, std::string_view head, std::string_view part, bool last) const;

  std::shared_ptr<ConnectionShared> shared_;
  std::shared_ptr<WatchedSocket> watched_;
  tcp::socket& socket_;  ///< That of watched_.
  boost::beast::flat_buffer buffer_{};
  Deadline deadline_;
  HttpRequest request_{};
  std::function<void()> notify_gone_{};
  std::string peer_;  ///< As HttpRequest has it.
  bool too_many_;
  bool idle_ = true;
  bool head_only_ = false;  ///< The method was HEAD.
  bool http_11_ = true;
  bool keep_alive_ = false;
  bool chunked_ = false;   ///< The answer that is being sent.
  bool bodiless_ = false;  ///< Likewise.
  bool gone_ = false;
};

// --- Time: one deadline, which closes the socket; whatever waits for the socket then ends. ---

void Connection::give_up() {
  close();
  mark_gone();
}

// --- Hang-ups: while a request is answered, the socket is watched. What comes is the beginning of
// the next request, and stays in the buffer. ---

void Connection::mark_gone() {
  gone_ = true;
  keep_alive_ = false;
  if (notify_gone_) {
    std::exchange(notify_gone_, nullptr)();
  }
}

/// Reads what has come, to the buffer.
ErrorCode Connection::read_some(std::size_t most) {
  ErrorCode failure;
  buffer_.commit(socket_.read_some(buffer_.prepare(most), failure));
  return failure == asio::error::would_block ? ErrorCode() : failure;
}

/// Something has come while a request is answered.
void Connection::look_ahead() {
  if (read_some(kReadBytes)) {
    mark_gone();
  } else {
    watch();
  }
}

void Connection::watch() {
  if (buffer_.size() < kPipelinedBytesMax) {
    watched_->watch();
  }
}

// --- Requests ---

Task<void> Connection::run(std::shared_ptr<Connection> self) {
  for (bool again = true; again && !self->shared_->draining;) {
    self->idle_ = true;
    if (self->buffer_.size() == 0) {
      self->give_up_after(self->shared_->limits.idle_timeout);
      co_await self->watched_->readable();
      if (self->read_some(kReadBytes)) {
        break;
      }
    }
    self->idle_ = false;
    const bool complete = co_await self->read_request();
    again = self->keep_alive_;
    if (complete) {
      self->be_patient();
      self->watch();
      co_await self->shared_->handler(*self);
      self->notify_gone_ = nullptr;
      again = self->keep_alive_ && !self->gone_ && self->socket_.is_open();
    }
  }
  self->be_patient();
  ErrorCode ignored;
  self->socket_.shutdown(tcp::socket::shutdown_both, ignored);
  self->close();
}

void Connection::take_head(const RequestParser& parser) {
  head_only_ = request_.head_only;
  http_11_ = parser.is_11();
  keep_alive_ = parser.keep_alive() && !too_many_;
  const std::string_view id = field_value(request_.headers, kRequestIdField);
  if (sane_request_id(id)) {
    request_.request_id = id;
  }
}

/// Parses what has been read already: most requests have come as a whole by then.
ErrorCode Connection::parse_buffered(RequestParser& parser) {
  ErrorCode failure;
  while (buffer_.size() > 0 && !failure && !parser.is_done()) {
    const bool had_head = parser.is_header_done();
    buffer_.consume(parser.put(buffer_.data(), failure));
    if (parser.is_header_done() && !had_head) {
      break;
    }
  }
  return failure == http::error::need_more ? ErrorCode() : failure;
}

/// Reads until that part of the request is there; mostly it is.
Task<ErrorCode> Connection::read(RequestParser& parser, Part part) {
  const ErrorCode failure = parse_buffered(parser);
  if (failure || has(parser, part)) {
    return failure;
  }
  return read_rest(parser, part);
}

Task<ErrorCode> Connection::read_rest(RequestParser& parser, Part part) {
  ErrorCode failure;
  while (!failure && !has(parser, part)) {
    co_await watched_->readable();
    failure = read_some(part == Part::kHead ? kReadBytes : kBodyReadBytes);
    failure = failure ? failure : parse_buffered(parser);
  }
  co_return failure;
}

/// Asks the gatekeeper; why the client is turned away, if it is.
std::optional<api::ApiError> Connection::let_in() {
  if (too_many_) {
    return api::unavailable("too many connections: limits.connections is " +
                            std::to_string(shared_->limits.connections));
  }
  auto answer =
      shared_->gatekeeper({.method = request_.method,
                           .path = request_.path,
                           .authorization = field_value(request_.headers, "authorization"),
                           .api_key = field_value(request_.headers, "x-api-key")});
  if (auto* turned_away = std::get_if<api::ApiError>(&answer)) {
    return std::move(*turned_away);
  }
  request_.guest = std::move(std::get<Guest>(answer));
  return std::nullopt;
}

/// What to say of a request that could not be read; nothing where nobody listens.
std::optional<api::ApiError> Connection::complaint(const ErrorCode& failure) const {
  const config::Limits& limits = shared_->limits;
  if (failure == http::error::body_limit) {
    api::ApiError large = api::invalid_request(
        "",
        "the body is larger than limits.body, which is " + std::to_string(limits.body) + " bytes");
    large.status = 413;
    return large;
  }
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    api::ApiError large = api::invalid_request("",
                                               "the head is larger than limits.header, which is " +
                                                   std::to_string(limits.header) + " bytes");
    large.status = 431;
    return large;
  }
  if (failure != http::error::end_of_stream && failure != http::error::partial_message &&
      failure.category() == make_error_code(http::error::bad_method).category()) {
    return api::invalid_request("", "this is not HTTP/1.1: " + failure.message());
  }
  return std::nullopt;
}

/// Reads head and body. False when there is no request to answer: what could be said has been, and
/// keep_alive_ tells whether there may be another.
Task<bool> Connection::read_request() {
  const config::Limits& limits = shared_->limits;
  HttpFields fields = std::move(request_.headers);
  fields.clear();
  request_ = HttpRequest{.headers = std::move(fields), .peer = peer_};  // For its memory.
  RequestParser parser(request_);
  parser.header_limit(static_cast<std::uint32_t>(limits.header));
  parser.body_limit(limits.body);
  give_up_after(limits.header_timeout);
  request_.request_id = draw_id(shared_->rng);
  keep_alive_ = false;
  ErrorCode failure = co_await read(parser, Part::kHead);
  if (!failure) {
    take_head(parser);
    if (std::optional<api::ApiError> no = let_in()) {
      keep_alive_ = keep_alive_ && parser.is_done();
      co_await refuse(std::move(*no));
      co_return false;
    }
    if (!parser.is_done() && http_11_ &&
        is_same_field(field_value(request_.headers, "expect"), "100-continue")) {
      const Pieces proceed{bytes_of("HTTP/1.1 100 Continue\r\n\r\n")};
      const Result<void> sent = co_await write(proceed);
      if (!sent) {
        co_return false;
      }
    }
    const std::uint64_t length = parser.content_length().value_or(limits.body);
    give_up_after(limits.header_timeout + 1s * (length / kBodyBytesPerSecond));
    parser.eager(true);
    failure = co_await read(parser, Part::kAll);
  }
  if (!failure) {
    request_.body = std::move(parser.body());
    co_return true;
  }
  keep_alive_ = false;
  if (std::optional<api::ApiError> wrong = complaint(failure)) {
    co_await refuse(std::move(*wrong));
  }
  co_return false;
}

/// Answers what was not read to its end.
Task<void> Connection::refuse(api::ApiError error) {
  HttpResponse response{.status = error.status, .body = api::error_text(error, request_.path)};
  if (error.status == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  if (error.retry_after > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  }
  const Result<void> sent = co_await respond(std::move(response));
  if (sent && !keep_alive_) {
    co_await linger();
  }
}

/// A client that is still sending would lose the answer if the socket were closed: its unread bytes
/// would reset the connection. So they are read for a while.
Task<void> Connection::linger() {
  ErrorCode ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  give_up_after(kLinger);
  std::array<char, kReadBytes> waste{};
  for (std::size_t total = 0; total < kLingerBytes;) {
    co_await watched_->readable();
    ErrorCode failure;
    total += socket_.read_some(asio::buffer(waste), failure);
    if (failure && failure != asio::error::would_block) {
      break;
    }
  }
}

// --- Answers ---

Task<Result<void>> Connection::write(Pieces pieces) {
  boost::beast::buffers_suffix left(pieces);
  if (const ErrorCode failure = send_at_once(socket_, left)) {
    keep_alive_ = false;
    return Result<void>(client_gone(failure));
  }
  if (asio::buffer_size(left) == 0) {
    return Result<void>();
  }
  return write_rest(left);
}

Task<Result<void>> Connection::write_rest(boost::beast::buffers_suffix<Pieces> left) {
  give_up_after(shared_->limits.stall_timeout);
  const auto [failure, sent] = co_await asio::async_write(socket_, left, kAwait);
  be_patient();
  if (failure) {
    keep_alive_ = false;
    co_return client_gone(failure);
  }
  co_return Result<void>();
}

Task<Result<void>> Connection::respond(HttpResponse response) {
  http::response<http::string_body> message(static_cast<http::status>(response.status),
                                            http_11_ ? 11 : 10);
  message.set(http::field::server, kServerName);
  message.set(kRequestIdField, request_.request_id);
  message.keep_alive(keep_alive_ && !shared_->draining);
  for (const auto& [name, value] : response.headers) {
    message.set(name, value);
  }
  if (!response.body.empty()) {
    message.set(http::field::content_type, response.content_type);
  }
  if (response.status != 204) {
    message.content_length(response.body.size());
  }
  if (!head_only_) {
    message.body() = std::move(response.body);
  }
  keep_alive_ = message.keep_alive();
  give_up_after(shared_->limits.stall_timeout);
  const auto [failure, sent] = co_await http::async_write(socket_, message, kAwait);
  be_patient();
  if (failure) {
    keep_alive_ = false;
    co_return client_gone(failure);
  }
  co_return Result<void>();
}

void Connection::add_head(std::string& text, const StreamHead& head) const {
  const auto status = static_cast<http::status>(head.status);
  text += http_11_ ? "HTTP/1.1 " : "HTTP/1.0 ";
  text += std::to_string(head.status) + " ";
  text += head.reason.empty() ? view(http::obsolete_reason(status)) : head.reason;
  text += "\r\n";
  bool has_server = false;
  const auto add = [&text](std::string_view name, std::string_view value) {
    text.append(name).append(": ").append(value).append("\r\n");
  };
  for (const auto& [name, value] : head.headers) {
    add(name, value);
    has_server = has_server || boost::beast::iequals(name, "server");
  }
  if (!has_server) {
    add("Server", kServerName);
  }
  add(kRequestIdField, request_.request_id);
  if (head.length) {
    add("Content-Length", std::to_string(*head.length));
  } else if (chunked_) {
    add("Transfer-Encoding", "chunked");
  }
  if (keep_alive_ != http_11_) {
    add("Connection", keep_alive_ ? "keep-alive" : "close");
  }
  text += "\r\n";
}

/// A part as it goes over the network, after `head`, and with the end of the body where it is the
/// last. `size` belongs to it.
Pieces Connection::frame(ChunkSize& size,
                         std::string_view head,
                         std::string_view part,
                         bool last) const {
  Pieces pieces{bytes_of(head)};
  if (bodiless_) {
    return pieces;
  }
  pieces[2] = bytes_of(part);
  if (chunked_ && !part.empty()) {
    char* const end = std::to_chars(size.begin(), size.end(), part.size(), 16).ptr;
    *end = '\r';
    *(end + 1) = '\n';
    pieces[1] = asio::buffer(size.data(), static_cast<std::size_t>(end + 2 - size.data()));
    pieces[3] = bytes_of(last ? "\r\n0\r\n\r\n" : "\r\n");
  } else if (chunked_ && last) {
    pieces[3] = bytes_of("0\r\n\r\n");
  }
  return pieces;
}

Task<Result<void>> Connection::begin(StreamHead head, std::string part) {
  const bool empty = head.status == 204 || head.status == 304;
  bodiless_ = head_only_ || empty;
  if (empty) {
    head.length.reset();
  }
  chunked_ = http_11_ && !empty && !head.length;
  // Where nothing else says where it ends, the connection does.
  keep_alive_ = keep_alive_ && !shared_->draining && (http_11_ || empty || head.length);
  std::string text;
  text.reserve(kUsualHead);
  add_head(text, head);
  ChunkSize size{};
  const Result<void> sent = co_await write(frame(size, text, part, /*last=*/false));
  co_return sent;
}

Task<Result<void>> Connection::send_part(std::string part) {
  ChunkSize size{};
  const Result<void> sent = co_await write(frame(size, "", part, /*last=*/false));
  co_return sent;
}

Task<Result<void>> Connection::end(std::string part) {
  ChunkSize size{};
  const Pieces pieces = frame(size, "", part, /*last=*/true);
  if (asio::buffer_size(pieces) == 0) {
    co_return Result<void>();
  }
  const Result<void> sent = co_await write(pieces);
  co_return sent;
}

}  // namespace

void HttpConnection::start(std::shared_ptr<ConnectionShared> shared,
                           tcp::socket socket,
                           bool too_many,
                           std::string peer) {
  asio::io_context& loop = shared->loop;
  auto connection =
      std::make_shared<Connection>(std::move(shared), std::move(socket), too_many, std::move(peer));
  spawn(loop, Connection::run(std::move(connection)));
}

}  // namespace heddle::gateway
