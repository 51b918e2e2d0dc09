#include "gateway/text_work.h"

#include <atomic>
#include <memory>

namespace heddle::gateway {

namespace {

/// Tokenising does 3 MB/s; two threads that sleep take some 100 µs to wake each other.
constexpr std::size_t kAtOnceBytes = 512;

/// Whose text it is, and word of its hanging up.
TextOwner owner_of(HttpExchange& http) {
  auto gone = std::make_shared<std::atomic<bool>>(http.gone());
  http.on_gone([gone] { gone->store(true); });
  return {.client = http.request().client(), .gone = std::move(gone)};
}

Task<std::optional<api::ApiError>> work_on_pool(Context& context,
                                                HttpExchange& http,
                                                std::size_t bytes,
                                                std::function<bool()> step) {
  TextOwner owner = owner_of(http);
  const Result<void> done =
      co_await context.pool.run_steps(std::move(owner), bytes, std::move(step));
  http.on_gone(nullptr);
  if (!done) {
    co_return api::from_error(done.error());
  }
  co_return std::nullopt;
}

}  // namespace

Task<std::optional<api::ApiError>> work_on_text(Context& context,
                                                HttpExchange& http,
                                                std::size_t bytes,
                                                std::function<bool()> step) {
  if (bytes > kAtOnceBytes) {
    return work_on_pool(context, http, bytes, std::move(step));
  }
  while (!step()) {
  }
  return std::optional<api::ApiError>();
}

Task<std::optional<api::ApiError>> work_on_body(Context& context,
                                                HttpExchange& http,
                                                std::function<void()> work) {
  const std::size_t bytes = http.request().body.size();
  if (bytes <= kBodyAtOnce) {
    work();
    return std::optional<api::ApiError>();
  }
  std::function<bool()> step = [work = std::move(work)] {
    work();
    return true;
  };
  return work_on_pool(context, http, bytes, std::move(step));
}

}  // namespace heddle::gateway
