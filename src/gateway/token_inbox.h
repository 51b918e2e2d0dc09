#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "core/serving.h"
#include "gateway/running_request.h"
#include "gateway/signal.h"

namespace heddle::gateway {

/// Collects what happens to the requests of one client until its coroutine comes to look. A client
/// request is one or more requests to the system behind (one for each prompt), each with a sink of
/// its own. Loop thread.
class TokenInbox final : public RunningRequest, public std::enable_shared_from_this<TokenInbox> {
 public:
  /// @param backlog_max  Tokens that may wait at most; a client that lets more wait fails.
  TokenInbox(boost::asio::io_context& loop, std::size_t backlog_max);

  /// Where one request's events go; they are marked with `prompt`.
  [[nodiscard]] std::shared_ptr<core::RequestSink> sink(std::size_t prompt);

  struct Token {
    std::size_t prompt = 0;
    core::TokenEvent event{};
  };
  /// The tokens since the last call, in order.
  [[nodiscard]] std::vector<Token> take_tokens();

  /// Whether that request has ended: nothing more comes from it, and it need not be cancelled.
  [[nodiscard]] bool ended(std::size_t prompt) const { return ended_.contains(prompt); }

  /// Why one of the requests failed, if one has.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  void fail(Error error) override;
  /// `notify` is called once, from within fail() or a sink, when the client's request has failed.
  void on_failure(std::function<void()> notify) { notify_failure_ = std::move(notify); }

  /// How much of the model's weights is in place; nothing while no load was heard of.
  struct Loading {
    std::uint64_t loaded = 0;
    std::uint64_t total = 0;
  };
  [[nodiscard]] const std::optional<Loading>& loading() const { return loading_; }

  /// Told of everything above.
  Signal signal;

 private:
  class Sink;

  std::size_t backlog_max_;
  std::vector<Token> tokens_{};
  std::set<std::size_t> ended_{};
  std::optional<Error> error_{};
  std::optional<Loading> loading_{};
  std::function<void()> notify_failure_{};
};

}  // namespace heddle::gateway
