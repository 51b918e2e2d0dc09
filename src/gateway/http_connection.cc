#include "gateway/http_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/status.hpp>

#include "api/error_text.h"
#include "base/clock.h"
#include "gateway/deadline.h"
#include "gateway/http_exchange.h"
#include "gateway/http_parser.h"
#include "gateway/request_id.h"
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
/// Slower clients are given up, by what has come of a body, and gone of an answer.
constexpr std::uint64_t kBodyBytesPerSecond = 64U << 10U;
constexpr std::uint64_t kAnswerBytesPerSecond = 1U << 10U;
constexpr Duration kLinger = 2s;
constexpr Duration kLingerAtEnd = 200ms;  ///< Of the server.
constexpr std::size_t kLingerBytes = 16U << 20U;
constexpr std::size_t kUsualHead = 512;  ///< Of an answer [bytes].
constexpr const char* kServerName = "heddle";
constexpr const char* kRequestIdField = "X-Request-Id";
constexpr const char* kAnthropicIdField = "request-id";  ///< What Anthropic's clients look for.

Error client_gone(const ErrorCode& why) {
  return {.code = Code::kCancelled, .message = "send to client: " + why.message()};
}

std::string peer_of(const tcp::socket& socket) {
  ErrorCode gone;
  const tcp::endpoint peer = socket.remote_endpoint(gone);
  return gone ? std::string() : peer.address().to_string();
}

/// What so many bytes may take.
Duration pace(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  const Duration a_byte = Duration(1s) / static_cast<Duration::rep>(bytes_per_second);
  return a_byte * static_cast<Duration::rep>(bytes);
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
  Connection(std::shared_ptr<ConnectionShared> shared, tcp::socket socket, std::string peer)
      : shared_(std::move(shared)),
        tls_(!peer.empty()),
        peer_(peer.empty() ? peer_of(socket) : std::move(peer)),
        socket_(std::make_shared<WatchedSocket>(
            shared_->loop, std::move(socket), [this] { look_ahead(); })),
        deadline_(shared_->loop, [this] { give_up(); }) {
    shared_->table.enter(*this, peer_group(peer_));
  }
  ~Connection() override {
    socket_->leave();
    shared_->table.leave(*this);
    shared_->closed();
  }

  static Task<void> run(std::shared_ptr<Connection> self);
  void wind_down() override {
    if (reading_body_) {
      socket_->wake();  // Finds that the server ends, and says so.
    } else if (!answering_) {
      close();
    }
  }
  void close() override { socket_->close(); }

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
  using State = ConnectionTable::State;

  Task<bool> read_request();
  enum class Part : std::uint8_t { kHead, kAll };
  static bool has(const RequestParser& parser, Part part) {
    return part == Part::kHead ? parser.is_head_done() : parser.is_done();
  }
  enum class Read : std::uint8_t {
    kDone,
    kFault,   ///< The parser has it.
    kGone,    ///< The client.
    kEnding,  ///< The server ends.
  };
  Task<Read> read(RequestParser& parser, Part part);
  Task<Read> read_rest(RequestParser& parser, Part part);
  void parse_buffered(RequestParser& parser, Part part);
  Task<void> complain(Read read, const RequestParser& parser);
  Task<void> refuse(api::ApiError error);
  Task<void> linger();
  Task<Result<void>> write(Pieces pieces);
  Task<Result<void>> write_rest(boost::beast::buffers_suffix<Pieces> left);

  std::optional<api::ApiError> let_in(bool has_body);
  [[nodiscard]] bool is_probe() const;
  [[nodiscard]] api::ApiError complaint(const HttpFault& fault) const;
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
  bool tls_;          ///< It is behind a TlsFront.
  std::string peer_;  ///< As HttpRequest has it.
  std::shared_ptr<WatchedSocket> socket_;
  boost::beast::flat_buffer buffer_{};
  Deadline deadline_;
  HttpRequest request_{};
  std::function<void()> notify_gone_{};
  Duration slack_{};  ///< What the client may still keep its answer waiting.
  bool reading_body_ = false;
  bool answering_ = false;
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
  buffer_.commit(socket_->read_some(buffer_.prepare(most), failure));
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
    socket_->watch();
  }
}

// --- Requests ---

Task<void> Connection::run(std::shared_ptr<Connection> self) {
  for (bool again = true; again && !self->shared_->draining;) {
    if (self->buffer_.size() == 0) {
      self->give_up_after(self->shared_->options.limits.idle_timeout);
      co_await self->socket_->readable();
      if (self->read_some(kReadBytes)) {
        break;
      }
    }
    const bool complete = co_await self->read_request();
    again = self->keep_alive_;
    if (complete) {
      self->be_patient();
      self->watch();
      self->answering_ = true;
      co_await self->shared_->handler(*self);
      self->answering_ = false;
      self->notify_gone_ = nullptr;
      again = self->keep_alive_ && !self->gone_ && self->socket_->is_open();
    }
    self->shared_->table.move(*self, State::kBetween);
  }
  self->be_patient();
  self->close();
}

void Connection::take_head(const RequestParser& parser) {
  head_only_ = request_.head_only;
  http_11_ = parser.is_11();
  keep_alive_ = parser.keep_alive();
  const std::string_view id = field_value(request_.headers, kRequestIdField);
  if (is_sane_request_id(id)) {
    request_.request_id = id;
  }
}

/// Parses what has been read already: most requests have come as a whole by then.
void Connection::parse_buffered(RequestParser& parser, Part part) {
  std::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (part == Part::kHead) {
    parser.put_head(bytes);
  } else {
    parser.put(bytes);
  }
  buffer_.consume(buffer_.size() - bytes.size());
}

/// Reads until that part of the request is there; mostly it is.
Task<Connection::Read> Connection::read(RequestParser& parser, Part part) {
  parse_buffered(parser, part);
  if (parser.fault()) {
    return Read::kFault;
  }
  if (has(parser, part)) {
    return Read::kDone;
  }
  return read_rest(parser, part);
}

Task<Connection::Read> Connection::read_rest(RequestParser& parser, Part part) {
  const bool is_body = part == Part::kAll;
  if (!is_body) {
    shared_->table.move(*this, State::kHead);
  }
  const Instant began = steady_now();
  std::uint64_t come = 0;
  while (!parser.fault() && !has(parser, part)) {
    reading_body_ = is_body;
    co_await socket_->readable();
    reading_body_ = false;
    if (shared_->draining) {
      co_return Read::kEnding;
    }
    const std::size_t before = buffer_.size();
    if (read_some(is_body ? kBodyReadBytes : kReadBytes)) {
      co_return Read::kGone;
    }
    come += buffer_.size() - before;
    parse_buffered(parser, part);
    if (is_body) {
      const Duration granted =
          shared_->options.limits.header_timeout + pace(come, kBodyBytesPerSecond);
      give_up_after(granted - (steady_now() - began));
    }
  }
  co_return parser.fault() ? Read::kFault : Read::kDone;
}

/// Whether it asks only how the server is, which it is told however many ask for other things.
bool Connection::is_probe() const {
  const std::vector<std::string>& probes = shared_->options.probes;
  return request_.method == "GET" &&
         std::find(probes.begin(), probes.end(), request_.path) != probes.end();
}

/// Asks the gatekeeper, and for room; why the client is turned away, if it is.
std::optional<api::ApiError> Connection::let_in(bool has_body) {
  const config::Limits& limits = shared_->options.limits;
  const bool is_kept_room_for = !has_body && is_probe();
  if (!is_kept_room_for && shared_->table.busy() >= static_cast<std::size_t>(limits.connections)) {
    keep_alive_ = false;
    return api::unavailable("too many connections: limits.connections is " +
                            std::to_string(limits.connections));
  }
  Admission answer = shared_->gatekeeper(
      {.method = request_.method, .path = request_.path, .headers = request_.headers});
  request_.answer_headers = std::move(answer.headers);
  if (!answer.path.empty()) {
    request_.path = std::move(answer.path);
  }
  if (auto* turned_away = std::get_if<api::ApiError>(&answer.principal)) {
    return std::move(*turned_away);
  }
  request_.principal = std::move(std::get<Principal>(answer.principal));
  if (is_kept_room_for) {
    shared_->table.move(*this, State::kBusy);
  } else if (!shared_->table.begin(*this,
                                   request_.client(),
                                   static_cast<std::size_t>(limits.connections_per_client))) {
    return api::concurrency_limit(
        "too many requests of this client at once: limits.connections_per_client is " +
        std::to_string(limits.connections_per_client));
  }
  return std::nullopt;
}

/// What to say of a request that cannot be taken.
api::ApiError Connection::complaint(const HttpFault& fault) const {
  const config::Limits& limits = shared_->options.limits;
  std::string why = "this is not a request of HTTP/1.1: " + std::string(fault.why);
  if (fault.status == 413) {
    why = "the body is larger than limits.body, which is " + std::to_string(limits.body) + " bytes";
  } else if (fault.status == 431) {
    why = std::string(fault.why) + ": limits.header is " + std::to_string(limits.header) + " bytes";
  }
  api::ApiError error = api::invalid_request("", std::move(why));
  error.status = fault.status;
  return error;
}

/// Says why a request was not read to its end, where somebody listens.
Task<void> Connection::complain(Read read, const RequestParser& parser) {
  keep_alive_ = false;
  if (read == Read::kFault) {
    co_await refuse(complaint(*parser.fault()));
  } else if (read == Read::kEnding) {
    co_await refuse(api::unavailable("the server is shutting down"));
  }
}

/// Reads head and body. False when there is no request to answer: what could be said has been, and
/// keep_alive_ tells whether there may be another.
Task<bool> Connection::read_request() {
  const config::Limits& limits = shared_->options.limits;
  HttpFields fields = std::move(request_.headers);  // For its memory.
  fields.clear();
  request_ = HttpRequest{.headers = std::move(fields), .peer = peer_, .tls = tls_};
  RequestParser parser(request_, {.head = limits.header, .body = limits.body});
  give_up_after(limits.header_timeout);
  slack_ = limits.stall_timeout;
  request_.request_id = draw_request_id(shared_->rng);
  keep_alive_ = false;
  head_only_ = false;
  http_11_ = true;
  Read got = co_await read(parser, Part::kHead);
  if (got == Read::kDone) {
    take_head(parser);
    if (std::optional<api::ApiError> no = let_in(!parser.is_done())) {
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
    give_up_after(limits.header_timeout);
    got = co_await read(parser, Part::kAll);
  }
  if (got == Read::kDone) {
    request_.body = std::move(parser.body());
    co_return true;
  }
  co_await complain(got, parser);
  co_return false;
}

/// Answers what was not read to its end.
Task<void> Connection::refuse(api::ApiError error) {
  shared_->table.move(*this, State::kHead);
  HttpResponse response{.status = api::error_status(error, request_.path),
                        .body = api::error_text(error, request_.path, request_.request_id)};
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
  socket_->end_sending();
  give_up_after(shared_->draining ? kLingerAtEnd : kLinger);
  std::array<char, kReadBytes> waste{};
  for (std::size_t total = 0; total < kLingerBytes;) {
    co_await socket_->readable();
    ErrorCode failure;
    total += socket_->read_some(asio::buffer(waste), failure);
    if (failure && failure != asio::error::would_block) {
      break;
    }
  }
}

// --- Answers ---

Task<Result<void>> Connection::write(Pieces pieces) {
  boost::beast::buffers_suffix left(pieces);
  if (const ErrorCode failure = socket_->send_some(left)) {
    keep_alive_ = false;
    return Result<void>(client_gone(failure));
  }
  if (asio::buffer_size(left) == 0) {
    return Result<void>();
  }
  return write_rest(left);
}

/// Waits for the client to take what is left. Of its slack goes what it keeps it waiting, and what
/// it takes gives some back.
Task<Result<void>> Connection::write_rest(boost::beast::buffers_suffix<Pieces> left) {
  const Duration patience = shared_->options.limits.stall_timeout;
  for (std::size_t bytes = asio::buffer_size(left); bytes > 0;) {
    const Instant began = steady_now();
    give_up_after(slack_);
    co_await socket_->writable();
    if (const ErrorCode failure = socket_->send_some(left)) {
      be_patient();
      keep_alive_ = false;
      co_return client_gone(failure);
    }
    const std::size_t taken = bytes - asio::buffer_size(left);
    bytes -= taken;
    slack_ -= steady_now() - began;
    slack_ = std::min(slack_ + pace(taken, kAnswerBytesPerSecond), patience);
  }
  be_patient();
  co_return Result<void>();
}

Task<Result<void>> Connection::respond(HttpResponse response) {
  StreamHead head{.status = response.status,
                  .headers = std::move(response.headers),
                  .length = response.body.size()};
  if (!response.body.empty()) {
    head.headers.emplace_back("Content-Type", std::move(response.content_type));
  }
  return begin(std::move(head), std::move(response.body));
}

void Connection::add_head(std::string& text, const StreamHead& head) const {
  const auto status = static_cast<http::status>(head.status);
  text += http_11_ ? "HTTP/1.1 " : "HTTP/1.0 ";
  text += std::to_string(head.status) + " ";
  text += head.reason.empty() ? view(http::obsolete_reason(status)) : head.reason;
  text += "\r\n";
  bool has_server = false;
  bool has_id = false;
  bool has_date = false;
  const auto add = [&text](std::string_view name, std::string_view value) {
    text.append(name).append(": ").append(value).append("\r\n");
  };
  for (const auto& [name, value] : head.headers) {
    add(name, value);
    has_server = has_server || is_field(name, "server");
    has_id = has_id || is_field(name, "request-id");
    has_date = has_date || is_field(name, "date");
  }
  for (const auto& [name, value] : request_.answer_headers) {
    add(name, value);
  }
  if (!has_server) {
    add("Server", kServerName);
  }
  if (!has_date) {
    add("Date", shared_->date.at(std::time(nullptr)));
  }
  add(kRequestIdField, request_.request_id);
  if (!has_id && api::is_anthropic(request_.path)) {
    add(kAnthropicIdField, request_.request_id);
  }
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
                           std::string peer) {
  if (shared->table.size() >= static_cast<std::size_t>(shared->options.limits.connections)) {
    shared->table.push_out();
  }
  asio::io_context& loop = shared->loop;
  auto connection =
      std::make_shared<Connection>(std::move(shared), std::move(socket), std::move(peer));
  spawn(loop, Connection::run(std::move(connection)));
}

}  // namespace heddle::gateway
