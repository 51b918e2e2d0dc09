#include "gateway/peer_forwarding.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/log.h"
#include "gateway/http_parser.h"
#include "gateway/peer_connection.h"
#include "gateway/running_request.h"
#include "gateway/usage_sniffer.h"

namespace heddle::gateway {

namespace {

constexpr std::size_t kHeadMax = 64U << 10U;
constexpr int kInterimMax = 8;  ///< Answers with a status of 1xx before the one proper.
constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

/// As servers are called: without the port that the scheme has anyway.
std::string host_of(const HttpAddress& address) {
  std::string authority = address.authority();
  if (address.port == (address.tls ? kHttpsPort : kHttpPort)) {
    authority.resize(authority.rfind(':'));
  }
  return authority;
}

std::string message_of(const HttpAddress& address, const UpstreamRequest& request) {
  std::string text = request.method + " " + address.base_path + request.target + " HTTP/1.1\r\n";
  text += "Host: " + host_of(address) + "\r\nConnection: close\r\n";
  for (const auto& [name, value] : request.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n\r\n";
  return text + request.body;
}

/// What an exchange that failed means to the client.
api::ApiError error_of(const Error& error) {
  api::ApiError told = api::from_error(error);
  told.status = error.code == Code::kDeadlineExceeded ? 504 : 502;
  told.code = error.code == Code::kDeadlineExceeded ? "gateway_timeout" : "bad_gateway";
  told.type = "server_error";
  told.retry_after = 0;
  return told;
}

/// One request to a peer; its coroutine holds it.
class PeerForwarding final : public RunningRequest {
 public:
  PeerForwarding(std::shared_ptr<Context> context, HttpExchange& http, PeerJob job)
      : context_(std::move(context)),
        http_(http),
        job_(std::move(job)),
        asker_(asker_of(http.request())),
        places_(job_.peer->queue.take(asker_.share, 1)),
        connection_(context_->loop, job_.peer->config, job_.peer->tls),
        began_(context_->now()) {
    context_->live.push_back(*this);
    http_.on_gone([this] { connection_.close(); });
    begin_parser();
  }
  ~PeerForwarding() override {
    http_.on_gone(nullptr);
    if (context_->serving != nullptr && answered_) {
      account_for(*context_,
                  asker_,
                  job_.model,
                  {.prompt_tokens = usage_.prompt_tokens().value_or(0),
                   .completion_tokens = usage_.completion_tokens().value_or(0),
                   .cached_tokens = usage_.cached_tokens().value_or(0)});
    }
  }
  PeerForwarding(const PeerForwarding&) = delete;
  PeerForwarding& operator=(const PeerForwarding&) = delete;

  void fail(Error error) override {
    failure_ = std::move(error);
    connection_.close();
  }

  static Task<void> run(std::unique_ptr<PeerForwarding> self) {
    Result<void> done = co_await self->exchange();
    if (done || self->http_.gone() || self->client_left_) {
      co_return;
    }
    const Error error = self->failure_.value_or(done.error());
    log::warning("a peer did not answer",
                 {{"peer", self->job_.peer->config.name},
                  {"request", self->http_.request().request_id},
                  {"why", error.message}});
    if (self->answering_) {
      self->http_.drop();
      co_return;
    }
    api::ApiError told = self->failure_ ? api::from_error(error) : error_of(error);
    co_await respond_error(self->http_, std::move(told));
  }

 private:
  void begin_parser() {
    parser_.emplace(job_.request.method == "HEAD", HttpParser::Bounds{.head = kHeadMax});
  }

  /// What is left of the time that a request has, and of that to the head of its answer.
  [[nodiscard]] Duration patience() const {
    const Duration age = context_->now() - began_;
    Duration left = context_->limits.request_timeout - age;
    const Duration head = job_.peer->config.response_timeout;
    if (head > Duration{} && !answering_) {
      left = std::min(left, head - age);
    }
    return std::max(left, Duration(1ms));
  }

  Task<Result<void>> exchange() {
    Result<void> done = co_await connection_.open();
    if (done) {
      std::string message = message_of(job_.peer->config.address, job_.request);
      done = co_await connection_.write(std::move(message));
    }
    if (done) {
      done = co_await await_head();
    }
    if (done) {
      done = co_await pass_answer();
    }
    co_return done;
  }

  /// Reads once, and parses it. kCorrupt for what is no HTTP, kUnavailable where the peer ends its
  /// answer before it is whole.
  Task<Result<void>> read_some() {
    const Duration left = patience();
    const Result<std::string> bytes = co_await connection_.read(left);
    if (!bytes) {
      co_return bytes.error();
    }
    if (bytes->empty() && !parser_->put_end()) {
      co_return Error{.code = Code::kUnavailable,
                      .message = "the peer \"" + job_.peer->config.name +
                                 "\" closed the connection before its answer was whole"};
    }
    unread_ += *bytes;
    co_return parse();
  }

  Result<void> parse() {
    std::string_view left = unread_;
    do {
      if (parser_->is_done() && parser_->status() / 100 == 1) {
        if (parser_->status() == 101 || ++interim_ > kInterimMax) {
          return Error{.code = Code::kCorrupt, .message = "it answers with status 1xx only"};
        }
        begin_parser();  // The answer proper follows.
      }
      parser_->put(left);
    } while (parser_->is_done() && parser_->status() / 100 == 1 && !left.empty());
    unread_.erase(0, unread_.size() - left.size());
    if (parser_->fault()) {
      return Error{.code = Code::kCorrupt,
                   .message = "the answer of the peer \"" + job_.peer->config.name +
                              "\" is not HTTP/1.1: " + std::string(parser_->fault()->why)};
    }
    return {};
  }

  Task<Result<void>> await_head() {
    Result<void> done;
    while (done && !(parser_->is_head_done() && parser_->status() / 100 != 1)) {
      done = co_await read_some();
    }
    if (done && parser_->status() / 100 == 3) {
      co_return Error{.code = Code::kUnavailable,
                      .message = "the peer \"" + job_.peer->config.name +
                                 "\" redirects, which is not followed; give its own address"};
    }
    co_return done;
  }

  /// What has come of the body.
  std::string take_part() {
    std::string part = std::exchange(parser_->body(), {});
    if (readable_) {
      usage_.see(part);
    }
    return part;
  }

  Task<Result<void>> pass_answer() {
    StreamHead head{.status = parser_->status(),
                    .reason = std::move(parser_->reason()),
                    .headers = passed_on(end_to_end(std::move(parser_->headers())))};
    if (const auto length = parser_->content_length()) {
      head.length = *length;
    }
    const std::string_view coding = field_value(head.headers, "content-encoding");
    readable_ = coding.empty() || is_same_field(coding, "identity");
    answering_ = answered_ = true;
    std::string first = take_part();
    Result<void> sent = co_await http_.begin(std::move(head), std::move(first));
    Result<void> read;
    while (sent && read && !parser_->is_done()) {
      read = co_await read_some();
      std::string part = take_part();
      if (!part.empty()) {
        sent = co_await http_.send_part(std::move(part));
      }
    }
    if (sent && read) {
      sent = co_await http_.end(std::string());
    }
    client_left_ = !sent;
    co_return read;
  }

  std::shared_ptr<Context> context_;
  HttpExchange& http_;
  PeerJob job_;
  Asker asker_;
  ModelQueue::Places places_;
  PeerConnection connection_;
  Instant began_;
  std::optional<ResponseParser> parser_{};
  UsageSniffer usage_{};
  std::optional<Error> failure_{};  ///< Why it was ended from outside.
  std::string unread_{};            ///< Read, and not parsed.
  int interim_ = 0;
  bool readable_ = false;   ///< The body is text.
  bool answering_ = false;  ///< Something of the answer goes to the client.
  bool answered_ = false;
  bool client_left_ = false;
};

}  // namespace

HttpFields headers_for_peer(const HttpRequest& request, const std::string& key) {
  constexpr auto kKept = std::to_array<std::string_view>({"authorization",
                                                          "x-api-key",
                                                          "api-key",
                                                          "x-goog-api-key",
                                                          "cookie",
                                                          "accept-encoding",
                                                          "x-request-id",
                                                          "origin",
                                                          "referer",
                                                          "forwarded",
                                                          "x-forwarded-for",
                                                          "x-real-ip"});
  HttpFields headers = request.headers;
  headers = end_to_end(std::move(headers));
  std::erase_if(headers, [&kKept](const auto& field) {
    return std::ranges::any_of(
        kKept, [&field](std::string_view name) { return is_same_field(field.first, name); });
  });
  headers.emplace_back("X-Request-Id", request.request_id);
  if (!key.empty()) {
    headers.emplace_back("Authorization", "Bearer " + key);
    headers.emplace_back("x-api-key", key);
  }
  return headers;
}

Task<void> forward_to_peer(std::shared_ptr<Context> context, HttpExchange& http, PeerJob job) {
  Peer& peer = *job.peer;
  const Asker asker = asker_of(http.request());
  if (!peer.queue.has_room(context->limits.queue, asker.share, 1)) {
    return respond_error(http,
                         api::concurrency_limit("the peer \"" + peer.config.name +
                                                "\" has as many requests as limits.queue lets it"));
  }
  if (!peer.trouble.empty()) {
    return respond_error(http, error_of({.code = Code::kUnavailable, .message = peer.trouble}));
  }
  return PeerForwarding::run(
      std::make_unique<PeerForwarding>(std::move(context), http, std::move(job)));
}

}  // namespace heddle::gateway
