#include "gateway/token_inbox.h"

#include <utility>

namespace heddle::gateway {

class TokenInbox::Sink final : public core::RequestSink {
 public:
  Sink(std::shared_ptr<TokenInbox> inbox, std::size_t prompt)
      : inbox_(std::move(inbox)), prompt_(prompt) {}

  void on_tokens(const std::vector<core::TokenEvent>& tokens) override {
    if (inbox_->error_) {
      return;  // Nobody will take them any more.
    }
    if (inbox_->tokens_.size() + tokens.size() > inbox_->backlog_max_) {
      inbox_->fail({.code = Code::kCancelled,
                    .message = "the client takes its answer too slowly: " +
                               std::to_string(inbox_->backlog_max_) + " tokens wait for it"});
      return;
    }
    for (const core::TokenEvent& event : tokens) {
      inbox_->tokens_.push_back({.prompt = prompt_, .event = event});
    }
    inbox_->signal.notify();
  }

  void on_loading(std::uint64_t loaded, std::uint64_t total) override {
    inbox_->loading_ = Loading{.loaded = loaded, .total = total};
  }

  void on_done() override {
    inbox_->ended_.insert(prompt_);
    inbox_->signal.notify();
  }

  void on_error(const Error& error) override {
    inbox_->ended_.insert(prompt_);
    inbox_->fail(error);
  }

 private:
  std::shared_ptr<TokenInbox> inbox_;
  std::size_t prompt_;
};

TokenInbox::TokenInbox(boost::asio::io_context& loop, std::size_t backlog_max)
    : signal(loop), backlog_max_(backlog_max) {}

std::shared_ptr<core::RequestSink> TokenInbox::sink(std::size_t prompt) {
  return std::make_shared<Sink>(shared_from_this(), prompt);
}

std::vector<TokenInbox::Token> TokenInbox::take_tokens() {
  return std::exchange(tokens_, {});
}

void TokenInbox::fail(Error error) {
  if (!error_) {
    error_ = std::move(error);
  }
  signal.notify();
  if (notify_failure_) {
    std::exchange(notify_failure_, nullptr)();
  }
}

}  // namespace heddle::gateway
