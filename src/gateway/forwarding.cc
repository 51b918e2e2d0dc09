#include "gateway/forwarding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/error_text.h"
#include "api/responses.h"
#include "api/sse.h"
#include "base/units.h"
#include "gateway/forwarded_request.h"
#include "gateway/job_setup.h"
#include "gateway/redirect.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr Duration kLoadingTextInterval = 1s;
/// Of an answer that has to become one event; engines' errors are far smaller.
constexpr std::size_t kEventMax = 4U << 20U;

/// Status 502: its redirect is neither followed nor passed on.
api::ApiError redirected_elsewhere(const std::string& model) {
  return {.status = 502,
          .message = "the engine of \"" + model +
                     "\" redirects to another place than itself, which heddle does not pass on; "
                     "configure the engine to redirect within its own address",
          .type = "server_error",
          .code = "bad_gateway"};
}

/// A text of several lines, such as JSON, as one event.
std::string event_of_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\r', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return api::sse_event(text);
}

/// The engine takes part in the trace of the request, if it has one.
ForwardJob in_trace(ForwardJob job, std::shared_ptr<RequestSpan> span) {
  if (span) {
    carry_on(*span, job.request.headers);
    job.span = std::move(span);
  }
  return job;
}

/// The coroutine's state; not in its frame, so that both are of sizes that are allocated fast.
class Forwarding {
 public:
  Forwarding(std::shared_ptr<Context> context, HttpExchange& http, ForwardJob job)
      : context_(std::move(context)),
        http_(http),
        job_(in_trace(std::move(job), http.span())),
        live_(context_, job_, http.request().request_id),
        inbox_(*live_.inbox()) {
    http_.on_gone([this] { inbox_.interrupt(); });
  }
  ~Forwarding() {
    http_.on_gone(nullptr);
    inbox_.on_interrupt(nullptr);
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  static Task<void> run(std::unique_ptr<Forwarding> self) {
    for (;;) {
      const bool ready = co_await self->wait_for_engine();
      if (!ready) {
        co_return;
      }
      const bool again = co_await self->ask_engine();
      if (!again) {
        co_return;
      }
    }
  }

 private:
  Task<bool> wait_for_engine();
  Task<bool> wait_and_tell();
  Task<bool> ask_engine();
  Task<Result<void>> await_answer(UpstreamExchange& engine);
  Task<Result<void>> pass_answer(UpstreamExchange& engine);
  Task<Result<void>> pass_parts(UpstreamExchange& engine);
  Task<Result<void>> pass_as_event(UpstreamExchange& engine);
  Task<bool> recover(Error error, std::uint64_t losses, bool cut);
  Task<void> fail(Error error);
  Task<void> fail_with(api::ApiError told, std::string why);
  Task<void> speak(std::string events);
  Task<void> tell_of_waiting();

  [[nodiscard]] bool tells_loading() const {
    return job_.events && job_.chat && job_.model->config.engine->loading_state &&
           inbox_.waiting().has_value();
  }
  std::string take_part();
  [[nodiscard]] bool keep_here(UpstreamExchange& engine) const;
  [[nodiscard]] Duration time_to_speak() const;
  [[nodiscard]] std::string error_events(const api::ApiError& error) const;
  [[nodiscard]] StreamHead take_head(UpstreamExchange& engine) const;

  std::shared_ptr<Context> context_;
  HttpExchange& http_;
  ForwardJob job_;
  ForwardedRequest live_;
  std::optional<api::ChunkWriter> chunks_{};  ///< Made when something is told of loading.
  ExternalInbox& inbox_;
  std::string part_{};      ///< Of the body; not sent yet.
  Duration spoken_{};       ///< Age at which the client was last told something.
  bool readable_ = false;   ///< The body is text.
  bool speaking_ = false;   ///< A stream of ours has begun.
  bool told_load_ = false;  ///< It was told that the model loads.
  bool answering_ = false;  ///< Something of the engine's answer went to the client.
  bool client_left_ = false;
  bool events_ = false;       ///< What goes to the client are events.
  std::string last_bytes_{};  ///< The last two of them.
};

// --- What is said to the client before the engine does ---

Task<void> Forwarding::speak(std::string events) {
  spoken_ = live_.age();
  Result<void> sent;
  if (!speaking_) {
    speaking_ = true;
    events_ = true;
    sent = co_await http_.begin_stream(kEventStream);
  }
  if (sent) {
    sent = co_await http_.send_part(std::move(events));
  }
  client_left_ = client_left_ || !sent;
}

Duration Forwarding::time_to_speak() const {
  if (!job_.events) {
    return Duration::max();
  }
  if (tells_loading() && !told_load_) {
    return {};
  }
  const Duration interval = tells_loading() ? kLoadingTextInterval : context_->comment_interval;
  return std::max(Duration{}, spoken_ + interval - live_.age());
}

Task<void> Forwarding::tell_of_waiting() {
  std::string text;
  if (!tells_loading()) {
    text = api::sse_comment("waiting for " + job_.model->config.id);
  } else {
    api::Choice thought{.reasoning = told_load_ ? "." : "loading " + job_.model->config.id + " "};
    told_load_ = true;
    if (!chunks_) {
      chunks_.emplace(api::AnswerHead{.id = "chatcmpl-" + draw_id(context_->rng),
                                      .created = wall_clock_ms() / 1000,
                                      .model = job_.name,
                                      .fingerprint = context_->fingerprint},
                      /*with_usage=*/false);
    }
    text = api::sse_event(chunks_->text(thought));
  }
  co_await speak(std::move(text));
}

/// False when nothing is left to do: the client has gone, or was told that it failed.
Task<bool> Forwarding::wait_for_engine() {
  if (inbox_.ready() && !speaking_) {
    return !http_.gone();
  }
  return wait_and_tell();
}

Task<bool> Forwarding::wait_and_tell() {
  while (!inbox_.ready()) {
    const Duration time_left = live_.check_time();
    if (http_.gone() || client_left_) {
      co_return false;
    }
    if (inbox_.error()) {
      co_await fail(*inbox_.error());
      co_return false;
    }
    const Duration left = std::min(time_left, time_to_speak());
    if (left == Duration{}) {
      co_await tell_of_waiting();
    } else {
      co_await inbox_.signal.wait(left);
    }
  }
  if (told_load_) {
    told_load_ = false;
    api::Choice thought{.reasoning = "\nready after " + format_duration(live_.age()) + "\n\n"};
    std::string event = api::sse_event(chunks_->text(thought));
    co_await speak(std::move(event));
  }
  co_return !http_.gone() && !client_left_;
}

// --- The exchange with the engine ---

/// Returns whether to wait for the engine once more.
Task<bool> Forwarding::ask_engine() {
  const std::uint64_t losses = inbox_.losses();
  core::EngineRoute route = inbox_.take_route();
  const std::optional<HttpAddress> address = route.address;
  const std::unique_ptr<UpstreamExchange> engine = context_->upstream->exchange(std::move(route));
  inbox_.on_interrupt([&engine] { engine->close(); });
  live_.forwarded();
  if (job_.span) {
    job_.span->asked_engine = true;
    job_.span->engine = address;
  }
  part_.clear();
  Result<void> done = co_await await_answer(*engine);
  if (done) {
    done = co_await pass_answer(*engine);
  }
  inbox_.on_interrupt(nullptr);
  if (done) {
    co_return false;
  }
  const bool again = co_await recover(done.error(), losses, engine->cut_off());
  co_return again;
}

/// Sends the request and waits for the head of the answer with the first of its body. A head that
/// comes long before the body does not wait for it.
Task<Result<void>> Forwarding::await_answer(UpstreamExchange& engine) {
  const Result<void> sent = co_await engine.send(job_.request);
  if (!sent) {
    co_return sent.error();
  }
  const Duration limit = job_.model->config.engine->response_timeout;
  const Duration asked = live_.age();
  Duration headed{};
  while (engine.head() == nullptr || (part_.empty() && !engine.complete())) {
    Duration patience = std::min(live_.check_time(), context_->comment_interval);
    if (engine.head() == nullptr && limit > Duration{}) {
      patience = std::min(patience, asked + limit - live_.age());
      if (patience <= Duration{}) {
        co_return Error{.code = Code::kDeadlineExceeded,
                        .message = "the engine of \"" + job_.model->config.id +
                                   "\" began no answer within " + format_duration(limit)};
      }
    }
    const auto news = co_await engine.receive(patience);
    if (!news) {
      co_return news.error();
    }
    part_ = engine.take_body();
    if (engine.head() != nullptr) {
      if (headed == Duration{}) {
        headed = live_.age();
        live_.heard();
      }
      if (part_.empty() && live_.age() - headed >= context_->comment_interval) {
        break;
      }
    } else if (speaking_ && live_.age() - spoken_ >= context_->comment_interval) {
      std::string comment = api::sse_comment("waiting for " + job_.model->config.id);
      co_await speak(std::move(comment));
    }
  }
  co_return Result<void>();
}

/// What there is of the body, noted and no longer kept here.
std::string Forwarding::take_part() {
  live_.pass(part_, readable_);
  last_bytes_ += part_.substr(part_.size() - std::min<std::size_t>(part_.size(), 2));
  last_bytes_.erase(0, last_bytes_.size() - std::min<std::size_t>(last_bytes_.size(), 2));
  return std::exchange(part_, {});
}

/// What the client gets of its head, whose headers go.
StreamHead Forwarding::take_head(UpstreamExchange& engine) const {
  UpstreamHead& theirs = *engine.head();
  const bool events = theirs.is_event_stream();
  StreamHead head{.status = theirs.status,
                  .reason = theirs.reason,
                  .headers = passed_on(std::exchange(theirs.headers, {})),
                  .length = theirs.length};
  if (events && field_value(head.headers, "x-accel-buffering").empty()) {
    head.headers.emplace_back("X-Accel-Buffering", "no");
  }
  if (engine.complete() && !http_.request().head_only) {
    head.length = part_.size();
  }
  return head;
}

/// Where the engine sends the client elsewhere: has it go to the engine by way of us. False where
/// that is another place; only a redirect is followed, so of other answers that is left out.
bool Forwarding::keep_here(UpstreamExchange& engine) const {
  UpstreamHead& head = *engine.head();
  constexpr std::string_view kLocation = "location";
  const std::string given(field_value(head.headers, kLocation));
  if (given.empty()) {
    return true;
  }
  const auto place =
      redirect_below(engine.address(), job_.model->config.id, job_.request.target, given);
  std::erase_if(head.headers,
                [&](const auto& field) { return is_same_field(field.first, kLocation); });
  if (place) {
    head.headers.emplace_back("Location", *place);
  }
  return place.has_value() || head.status / 100 != 3;
}

Task<Result<void>> Forwarding::pass_answer(UpstreamExchange& engine) {
  const UpstreamHead& head = *engine.head();
  readable_ = head.is_plain();
  if (!keep_here(engine)) {
    api::ApiError told = redirected_elsewhere(job_.model->config.id);
    std::string why = told.message;
    co_await fail_with(std::move(told), std::move(why));
    co_return Result<void>();
  }
  if (speaking_) {
    if (head.status != 200 || !head.is_event_stream() || !head.is_plain()) {
      const Result<void> passed = co_await pass_as_event(engine);
      co_return passed;
    }
  } else {
    events_ = head.is_event_stream() && head.is_plain();
    StreamHead ours = take_head(engine);
    const bool whole = engine.complete();
    answering_ = true;
    const Result<void> begun = co_await http_.begin(std::move(ours), take_part());
    client_left_ = !begun;
    if (!begun || whole) {
      live_.end(begun ? head.status : 499, begun ? "" : "the client hung up");
      co_return Result<void>();
    }
  }
  const Result<void> passed = co_await pass_parts(engine);
  co_return passed;
}

/// Passes the rest of the body on, as it comes.
Task<Result<void>> Forwarding::pass_parts(UpstreamExchange& engine) {
  for (;;) {
    const bool whole = engine.complete();
    if (whole || !part_.empty()) {
      answering_ = answering_ || !part_.empty();
      Result<void> sent;
      if (whole) {
        sent = co_await http_.end(take_part());
      } else {
        sent = co_await http_.send_part(take_part());
      }
      client_left_ = !sent;
      if (whole || client_left_) {
        live_.end(client_left_ ? 499 : engine.head()->status,
                  client_left_ ? "the client hung up" : "");
        co_return Result<void>();
      }
    }
    const Duration left = live_.check_time();
    const auto news = co_await engine.receive(left);
    if (!news) {
      co_return news.error();
    }
    part_ = engine.take_body();
  }
}

/// Where comments were sent the status is 200 already: an answer that is no stream of events, such
/// as an error, becomes one event.
Task<Result<void>> Forwarding::pass_as_event(UpstreamExchange& engine) {
  std::string body = std::exchange(part_, {});
  while (!engine.complete() && body.size() < kEventMax) {
    const Duration left = live_.check_time();
    const auto news = co_await engine.receive(left);
    if (!news) {
      co_return news.error();
    }
    body += engine.take_body();
  }
  const UpstreamHead& head = *engine.head();
  live_.pass(body, head.is_plain());
  const bool json = head.is_plain() && engine.complete() && body.starts_with('{');
  std::string events;
  if (json) {
    events = event_of_lines(std::move(body)) + api::sse_event(api::kDone);
  } else {
    events = error_events({.status = head.status,
                           .message = "the engine answered with status " +
                                      std::to_string(head.status) + " and no JSON",
                           .type = "server_error"});
  }
  co_await speak(std::move(events));
  const Result<void> ended = co_await http_.end_stream();
  live_.end(ended ? 200 : 499,
            head.status == 200 ? "" : "the engine answered " + std::to_string(head.status));
  co_return Result<void>();
}

// --- Failures ---

/// After the engine did not answer to the end. Returns whether to wait for it once more.
Task<bool> Forwarding::recover(Error error, std::uint64_t losses, bool cut) {
  if (http_.gone() || client_left_) {
    co_return false;
  }
  const bool final = inbox_.error() || context_->serving == nullptr ||
                     error.code == Code::kDeadlineExceeded || error.code == Code::kCorrupt;
  if (final || answering_) {
    co_await fail(inbox_.error().value_or(std::move(error)));
    co_return false;
  }
  if (inbox_.losses() == losses) {
    live_.retry(cut);
  }
  co_return true;
}

std::string Forwarding::error_events(const api::ApiError& error) const {
  const std::string events = last_bytes_.empty() || last_bytes_ == "\n\n" ? "" : "\n\n";
  return events + api::error_events(error, http_.request().path, http_.request().request_id);
}

/// Tells the client, in whatever way is left.
Task<void> Forwarding::fail(Error error) {
  api::ApiError told = api::from_error(error);
  if (error.code == Code::kCorrupt) {
    told.status = 502;  // The engine's answer is no HTTP.
    told.code = "bad_gateway";
  }
  co_await fail_with(std::move(told), std::move(error.message));
}

/// `why` is for the log, which tells of paths.
Task<void> Forwarding::fail_with(api::ApiError told, std::string why) {
  if (!speaking_ && !answering_) {
    live_.end(told.status, why);
    co_await respond_error(http_, std::move(told));
    co_return;
  }
  live_.end(200, why);
  if (!events_) {
    http_.drop();
    co_return;
  }
  std::string events = error_events(told);
  const Result<void> sent = co_await http_.end(std::move(events));
  if (!sent) {
    live_.end(499, why);
  }
}

}  // namespace

Task<void> forward(std::shared_ptr<Context> context, HttpExchange& http, ForwardJob job) {
  return Forwarding::run(std::make_unique<Forwarding>(std::move(context), http, std::move(job)));
}

}  // namespace heddle::gateway
