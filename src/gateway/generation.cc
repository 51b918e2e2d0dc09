#include "gateway/generation.h"

#include <utility>

#include "api/sse.h"

namespace heddle::gateway {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// How long a stream waits for its first token before it commits to status 200, so that what fails
/// at once fails with a status of its own.
constexpr Duration kBeforeHead = 100ms;

/// Lets something happen. False when the client has gone.
asio::awaitable<bool> wait(HttpExchange& http, LiveRequests& live, Duration patience) {
  if (!http.gone()) {
    co_await live.inbox().signal.wait(patience);
  }
  live.check_time();
  co_return !http.gone();
}

asio::awaitable<void> answer_whole(HttpExchange& http, LiveRequests& live) {
  std::vector<api::Choice> choices;
  for (std::size_t prompt = 0; prompt < live.job().choices.size(); ++prompt) {
    for (std::size_t i = 0; i < live.job().choices[prompt].size(); ++i) {
      choices.push_back({.index = static_cast<std::uint32_t>(choices.size())});
      if (!live.job().echo.empty()) {
        choices.back().text = live.job().echo[prompt];
      }
    }
  }
  while (!live.complete()) {
    const bool here = co_await wait(http, live, live.patience());
    if (!here) {
      co_return;
    }
    for (api::Choice& news : live.take()) {
      api::append(choices[news.index], std::move(news));
    }
    if (!live.complete() && live.inbox().error()) {
      co_await fail(http, live);
      co_return;
    }
  }
  HttpResponse response{.body = api::answer_json(live.job().head, choices, live.usage())};
  const Result<void> sent = co_await http.respond(std::move(response));
  if (sent) {
    live.end(200);
  }
}

/// The events of a stream, but for comments.
class EventWriter {
 public:
  explicit EventWriter(LiveRequests& live)
      : live_(live), chunks_(live.job().head, live.job().params.include_usage) {}

  /// Whose turn it is, and what answers begin with.
  [[nodiscard]] std::string first() const {
    std::string events;
    std::uint32_t index = 0;
    for (std::size_t prompt = 0; prompt < live_.job().choices.size(); ++prompt) {
      for (std::size_t i = 0; i < live_.job().choices[prompt].size(); ++i, ++index) {
        if (live_.job().head.kind == api::AnswerKind::kChat) {
          events += api::sse_event(chunks_.role(index));
        }
        if (!live_.job().echo.empty()) {
          events +=
              api::sse_event(chunks_.text({.index = index, .text = live_.job().echo[prompt]}));
        }
      }
    }
    return events;
  }

  /// What has arrived, and the end when it has come.
  [[nodiscard]] std::string next() {
    std::string events;
    for (const api::Choice& news : live_.take()) {
      if (!api::is_empty(news)) {
        events += api::sse_event(chunks_.text(news));
      }
    }
    if (live_.complete()) {
      if (live_.job().params.include_usage) {
        events += api::sse_event(chunks_.usage(live_.usage()));
      }
      events += api::sse_event(api::kDone);
      ended_ = true;
    } else if (live_.inbox().error()) {
      events += api::sse_event(api::to_json(api::from_error(*live_.inbox().error())));
      events += api::sse_event(api::kDone);
      ended_ = true;
    }
    return events;
  }

  /// Whether next() has given the end of the stream.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  LiveRequests& live_;
  api::ChunkWriter chunks_;
  bool ended_ = false;
};

asio::awaitable<void> answer_events(HttpExchange& http, LiveRequests& live) {
  const bool waited = co_await wait(http, live, kBeforeHead);
  if (!waited) {
    co_return;
  }
  EventWriter writer(live);
  std::string events = writer.first() + writer.next();
  if (!live.complete() && live.inbox().error()) {
    co_await fail(http, live);
    co_return;
  }
  if (live.usage().completion_tokens == 0) {
    events += api::sse_comment(live.waiting_for());
  }
  const Result<void> begun = co_await http.begin_events();
  if (!begun) {
    co_return;
  }
  Duration spoken{};
  for (;;) {
    if (!events.empty()) {
      const Result<void> sent = co_await http.send_events(std::move(events));
      if (!sent) {
        co_return;
      }
      spoken = live.age();
    }
    if (writer.ended()) {
      break;
    }
    const bool here = co_await wait(http, live, live.patience());
    if (!here) {
      co_return;
    }
    events = writer.next();
    if (events.empty() && live.age() - spoken >= live.comment_interval()) {
      events = api::sse_comment(live.waiting_for());
    }
  }
  const Result<void> ended = co_await http.end_events();
  if (!ended) {
    co_return;
  }
  if (live.complete()) {
    live.end(200);
  } else {
    live.end(200, live.inbox().error()->message);
  }
}

}  // namespace

asio::awaitable<void> fail(HttpExchange& http, LiveRequests& live) {
  api::ApiError error = api::from_error(*live.inbox().error());
  live.end(error.status, error.message);
  co_await respond_error(http, std::move(error));
}

asio::awaitable<bool> wait_for_news(HttpExchange& http, LiveRequests& live) {
  return wait(http, live, live.patience());
}

void watch_and_start(HttpExchange& http, LiveRequests& live) {
  http.on_gone([inbox = live.inbox().weak_from_this()] {
    if (const std::shared_ptr<TokenInbox> box = inbox.lock()) {
      box->signal.notify();
    }
  });
  live.start();
}

asio::awaitable<void> generate(HttpExchange& http, std::shared_ptr<LiveRequests> live) {
  watch_and_start(http, *live);
  if (live->job().params.stream) {
    co_await answer_events(http, *live);
  } else {
    co_await answer_whole(http, *live);
  }
}

}  // namespace heddle::gateway
