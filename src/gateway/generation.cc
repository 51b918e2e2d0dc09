#include "gateway/generation.h"

#include <algorithm>
#include <utility>

#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// How long a stream waits for its first token before it commits to status 200, so that what fails
/// at once fails with a status of its own.
constexpr Duration kBeforeHead = 100ms;

/// Lets something happen. False when the client has gone.
Task<bool> wait(HttpExchange& http, LiveRequests& live, Duration patience) {
  if (!http.gone()) {
    co_await live.inbox().signal.wait(patience);
  }
  live.check_time();
  co_return !http.gone();
}

Task<void> answer_whole(HttpExchange& http, LiveRequests& live, api::AnswerWriter& writer) {
  std::vector<api::Choice> choices;
  for (const auto& prompt : live.job().choices) {
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      choices.push_back({.index = static_cast<std::uint32_t>(choices.size())});
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
  HttpResponse response{.body = writer.whole(choices, live.usage()),
                        .headers = warning_headers(live.job().params.warnings)};
  const Result<void> sent = co_await http.respond(std::move(response));
  if (sent) {
    live.end(200);
  }
}

/// Has the next events say how much has been used, where the client wants that of all.
void count(const LiveRequests& live, api::AnswerWriter& writer) {
  if (live.job().params.continuous_usage) {
    writer.count(live.usage());
  }
}

/// The events of what has arrived, and of the end when it has come.
std::string take_events(LiveRequests& live, api::AnswerWriter& writer, bool& ended) {
  std::string events;
  const std::vector<api::Choice> taken = live.take();
  count(live, writer);
  for (const api::Choice& news : taken) {
    events += writer.news(news);
  }
  if (live.complete()) {
    events += writer.end(live.usage());
    ended = true;
  } else if (live.inbox().error()) {
    events += writer.fail(api::from_error(*live.inbox().error()));
    ended = true;
  }
  return events;
}

Task<void> answer_events(HttpExchange& http, LiveRequests& live, api::AnswerWriter& writer) {
  const bool waited = co_await wait(http, live, kBeforeHead);
  if (!waited) {
    co_return;
  }
  bool ended = false;
  count(live, writer);
  std::string events = writer.begin();
  events += take_events(live, writer, ended);
  if (!live.complete() && live.inbox().error()) {
    co_await fail(http, live);
    co_return;
  }
  if (live.usage().completion_tokens == 0) {
    events += writer.waiting(live.waiting_for());
  }
  const Result<void> begun = co_await http.begin_stream(
      std::string(writer.content_type()), warning_headers(live.job().params.warnings));
  if (!begun) {
    co_return;
  }
  Duration spoken{};
  for (;;) {
    if (!events.empty()) {
      const Result<void> sent = co_await http.send_part(std::move(events));
      if (!sent) {
        co_return;
      }
      spoken = live.age();
    }
    if (ended) {
      break;
    }
    const bool here = co_await wait(http, live, live.patience());
    if (!here) {
      co_return;
    }
    events = take_events(live, writer, ended);
    if (events.empty() && live.age() - spoken >= live.comment_interval()) {
      events = writer.waiting(live.waiting_for());
    }
  }
  const Result<void> closed = co_await http.end_stream();
  if (!closed) {
    co_return;
  }
  if (live.complete()) {
    live.end(200);
  } else {
    live.end(200, live.inbox().error()->message);
  }
}

}  // namespace

HttpFields warning_headers(const std::vector<std::string>& warnings) {
  constexpr std::size_t kWarningBytesMax = 1024;
  std::string text;
  for (const std::string& warning : warnings) {
    text += (text.empty() ? "" : "; ") + warning;
  }
  text = api::shorten(text, kWarningBytesMax);
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.empty() ? HttpFields() : HttpFields{{"x-heddle-warnings", text}};
}

Task<void> fail(HttpExchange& http, LiveRequests& live) {
  api::ApiError error = api::from_error(*live.inbox().error());
  live.end(error.status, live.inbox().error()->message);
  co_await respond_error(http, std::move(error));
}

Task<bool> wait_for_news(HttpExchange& http, LiveRequests& live) {
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

Task<void> generate(HttpExchange& http,
                    std::shared_ptr<LiveRequests> live,
                    std::unique_ptr<api::AnswerWriter> writer) {
  watch_and_start(http, *live);
  if (live->job().params.stream) {
    co_await answer_events(http, *live, *writer);
  } else {
    co_await answer_whole(http, *live, *writer);
  }
}

Task<void> run_job(std::shared_ptr<Context> context,
                   HttpExchange& http,
                   GenerationJob job,
                   std::unique_ptr<api::AnswerWriter> writer) {
  job.span = http.span();
  Result<std::shared_ptr<LiveRequests>> live =
      LiveRequests::make(std::move(context), std::move(job));
  if (!live) {
    api::ApiError error = api::from_error(live.error());
    error.param = "stop";
    co_await respond_error(http, std::move(error));
    co_return;
  }
  co_await generate(http, std::move(live).value(), std::move(writer));
}

}  // namespace heddle::gateway
