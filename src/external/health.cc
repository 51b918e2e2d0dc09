#include "external/health.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"
#include "http/client.h"

namespace heddle::external {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr Duration kFirstPause = 10ms;
constexpr Duration kLongestPause = 200ms;
constexpr Duration kAnswerPatience = 5s;
/// An engine may open its port before it knows all of its paths.
constexpr Duration kUnknownPathPatience = 5s;
constexpr int kOk = 200;
constexpr int kNotFound = 404;

}  // namespace

asio::awaitable<Result<void>> await_healthy(HttpAddress address,
                                            std::string path,
                                            Duration patience,
                                            std::function<std::optional<Error>()> died) {
  const Instant deadline = steady_now() + patience;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  std::optional<Instant> unknown_since;
  std::string last = "nobody listens at " + address.authority();
  for (Duration pause = kFirstPause;; pause = std::min(pause * 3 / 2, kLongestPause)) {
    if (const std::optional<Error> end = died()) {
      co_return *end;
    }
    const Instant now = steady_now();
    if (now >= deadline) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
      co_return Error{Code::kDeadlineExceeded,
                      "not ready within " + std::to_string(ms) + " ms: " + last};
    }
    const Duration left = std::min<Duration>(kAnswerPatience, deadline - now);
    if (path.empty()) {
      const bool open = co_await http::port_open(address, left);
      if (open) {
        co_return Result<void>();
      }
    } else {
      http::Request request{.target = path, .patience = left};
      const Result<http::Reply> answer = co_await http::exchange(address, std::move(request));
      if (answer && answer->status == kOk) {
        co_return Result<void>();
      }
      last = answer ? "GET " + path + " gives status " + std::to_string(answer->status)
                    : answer.error().message;
      const bool unknown = answer && answer->status == kNotFound;
      unknown_since = unknown ? unknown_since.value_or(now) : std::optional<Instant>();
      if (unknown && now - *unknown_since >= kUnknownPathPatience) {
        co_return Error{Code::kNotFound,
                        "the engine listens at " + address.authority() + " but has no " + path +
                            "; set the model's health_path to a path that answers 200 when it is "
                            "ready, or to none"};
      }
    }
    timer.expires_after(pause);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

asio::awaitable<bool> gives_answer(HttpAddress address, std::string path, Duration patience) {
  if (path.empty()) {
    const bool open = co_await http::port_open(address, patience);
    co_return open;
  }
  http::Request request{.target = std::move(path), .patience = patience};
  const Result<http::Reply> answer =
      co_await http::exchange(std::move(address), std::move(request));
  co_return answer.has_value();
}

}  // namespace heddle::external
