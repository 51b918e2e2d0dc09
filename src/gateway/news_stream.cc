#include "gateway/news_stream.h"

#include <chrono>
#include <utility>

#include "api/sse.h"
#include "gateway/signal.h"

namespace heddle::gateway {
namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(200);

}  // namespace

Task<void> stream_news(std::shared_ptr<Context> context,
                       HttpExchange& http,
                       std::string content_type,
                       bool comments,
                       std::function<std::string()> take) {
  const auto hung_up = std::make_shared<Signal>(context->loop);
  http.on_gone([hung_up] { hung_up->notify(); });
  const Result<void> begun = co_await http.begin_stream(std::move(content_type));
  if (!begun) {
    co_return;
  }
  Instant spoken = context->now();
  while (!http.gone()) {
    std::string part = take();
    const bool silent = context->now() - spoken >= context->comment_interval;
    if (part.empty() && comments && silent) {
      part = api::sse_comment("no news");
    }
    if (!part.empty()) {
      const Result<void> sent = co_await http.send_part(std::move(part));
      if (!sent) {
        co_return;
      }
      spoken = context->now();
    }
    if (context->draining || context->serving == nullptr) {
      break;
    }
    co_await hung_up->wait(kLookInterval);
  }
  (void)co_await http.end_stream();  // A client that has gone does not need it.
}

}  // namespace heddle::gateway
