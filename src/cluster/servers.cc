#include "cluster/servers.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"

namespace heddle::cluster {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// Between tries that failed at once: as long as a server may take to come up again.
constexpr Duration kPauseOfTries = 20ms;
/// Tokens of Kubernetes are good for an hour, and files of them are renewed long before.
constexpr Duration kClientLife = 60s;
constexpr int kTriesPerCall = 3;
constexpr int kTooMany = 429;
constexpr int kServerFault = 500;
constexpr std::size_t kQuoteMax = 300;

Error no_answer(const Result<http::Reply>& reply) {
  if (!reply) {
    return reply.error();
  }
  return {Code::kUnavailable,
          "status " + std::to_string(reply->status) + ": " + reply->body.substr(0, kQuoteMax)};
}

}  // namespace

Servers::Servers(const asio::any_io_executor& executor,
                 std::string name,
                 std::vector<HttpAddress> addresses,
                 std::function<http::ClientOptions()> options,
                 RegistryOptions times)
    : executor_(executor),
      name_(std::move(name)),
      addresses_(std::move(addresses)),
      options_(std::move(options)),
      times_(times),
      clients_(addresses_.size()) {}

std::shared_ptr<http::Client> Servers::connect() const {
  return std::make_shared<http::Client>(executor_, addresses_[turn_], options_());
}

std::shared_ptr<http::Client> Servers::client() {
  const Instant now = steady_now();
  if (now - made_ > kClientLife) {
    clients_.assign(addresses_.size(), nullptr);
    made_ = now;
  }
  if (clients_[turn_] == nullptr) {
    clients_[turn_] = connect();
  }
  return clients_[turn_];
}

asio::awaitable<Result<Answer>> Servers::ask(http::Request request) {
  const Instant deadline = steady_now() + times_.patience;
  asio::steady_timer timer(executor_);
  request.once = true;
  for (bool unsure = false;; unsure = true) {
    const std::shared_ptr<http::Client> asked = client();
    const std::size_t turn = turn_;
    http::Request attempt = request;
    attempt.patience = std::min<Duration>(times_.patience / kTriesPerCall, deadline - steady_now());
    Result<http::Reply> reply = co_await asked->exchange(std::move(attempt));
    if (reply && reply->status < kServerFault && reply->status != kTooMany) {
      co_return Answer{.reply = std::move(*reply), .unsure = unsure};
    }
    const Error last = no_answer(reply);
    if (turn == turn_) {
      pass_on();
    }
    const bool useless = last.code != Code::kUnavailable && last.code != Code::kDeadlineExceeded;
    if (useless || steady_now() + kPauseOfTries >= deadline) {
      co_return Error{last.code, name_ + ": " + last.message};
    }
    timer.expires_after(kPauseOfTries);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace heddle::cluster
