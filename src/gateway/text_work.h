#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "api/error.h"
#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

/// What is done with the text of a request, on the loop where it is short and on the pool, with
/// that of all other clients, where it is long.
namespace heddle::gateway {

/// A body of so many bytes is parsed at once, which takes less than 0.2 ms.
inline constexpr std::size_t kBodyAtOnce = 64U << 10U;

/// Calls `step` until it says that all is done; it may use references to what the caller's
/// coroutine holds. What to tell the client where it came to no end: it has gone, or has too much
/// waiting.
Task<std::optional<api::ApiError>> work_on_text(Context& context,
                                                HttpExchange& http,
                                                std::size_t bytes,
                                                std::function<bool()> step);

/// The same of a work on the body that is done in one step.
Task<std::optional<api::ApiError>> work_on_body(Context& context,
                                                HttpExchange& http,
                                                std::function<void()> work);

template <class T>
Task<api::Parsed<T>> parse_aside(Context& context,
                                 HttpExchange& http,
                                 api::Parsed<T> (*parse)(std::string_view)) {
  std::optional<api::Parsed<T>> parsed;
  const std::string_view body = http.request().body;
  std::function<void()> work = [&parsed, parse, body] { parsed.emplace(parse(body)); };
  std::optional<api::ApiError> wrong = co_await work_on_body(context, http, std::move(work));
  if (wrong) {
    co_return api::Parsed<T>(std::move(*wrong));
  }
  co_return std::move(*parsed);
}

/// The request's body as a parser takes it. Its document is gone where it was made.
template <class T>
Task<api::Parsed<T>> parse_body(Context& context,
                                HttpExchange& http,
                                api::Parsed<T> (*parse)(std::string_view)) {
  if (http.request().body.size() <= kBodyAtOnce) {
    return parse(http.request().body);
  }
  return parse_aside(context, http, parse);
}

}  // namespace heddle::gateway
