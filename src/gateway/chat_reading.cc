#include "gateway/chat_reading.h"

#include <algorithm>

#include "text/tool_instructions.h"

namespace heddle::gateway {
namespace {

constexpr std::size_t kRenderedAtOnce = 4096;  ///< Bytes that are tokenised in the same step.

/// Ends a prompt with the last place of `text`, which is the last message's, as that shall go on.
void cut_behind(std::string_view text, Result<std::string>& prompt) {
  std::size_t at = prompt->rfind(text);
  // Many templates trim what they are given.
  while (at == std::string::npos && !text.empty() &&
         std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) {
    text.remove_suffix(1);
    at = prompt->rfind(text);
  }
  if (at == std::string::npos || text.empty()) {
    prompt = Error{.code = Code::kInvalidArgument,
                   .message =
                       "continue_final_message: this model's template does not show the "
                       "last message as it is, so it cannot be continued"};
    return;
  }
  prompt->resize(at + text.size());
}

}  // namespace

bool ChatReading::step() {
  if (reading_) {
    return reading_->step();
  }
  prompt_ =
      instructions_ ? text::render_plainly(model_, chat_, *instructions_) : model_.render(chat_);
  if (*prompt_ && continued_) {
    cut_behind(*continued_, *prompt_);
  }
  if (!*prompt_) {
    return true;
  }
  prompt_->value() += begun_;
  reading_.emplace(*model_.tokenizer(), prompt_->value(), special_, bounds_);
  return prompt_->value().size() <= kRenderedAtOnce && reading_->step();
}

std::string ChatReading::end() const {
  constexpr std::size_t kEndMax = 64;
  const std::string& prompt = prompt_->value();
  return prompt.substr(prompt.size() - std::min(prompt.size(), kEndMax));
}

api::Parsed<std::vector<TokenId>> ChatReading::take() {
  return reading_ ? reading_->take()
                  : api::Parsed<std::vector<TokenId>>(conversation_error(prompt_->error()));
}

api::ApiError conversation_error(const Error& error) {
  api::ApiError wrong = api::from_error(error, "messages");
  if (error.code == Code::kFailedPrecondition) {
    wrong.status = 400;  // There is no template: the client has to ask for something else.
  }
  return wrong;
}

}  // namespace heddle::gateway
