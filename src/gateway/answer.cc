#include "gateway/answer.h"

#include <algorithm>
#include <utility>

namespace heddle::gateway {

Result<Answer> Answer::make(std::shared_ptr<const text::TextModel> model, Options options) {
  Result<AnswerText> text = AnswerText::make(model, options.stop);
  if (!text) {
    return text.error();
  }
  return Answer(std::move(model), std::move(text).value(), std::move(options));
}

Answer::Answer(std::shared_ptr<const text::TextModel> model, AnswerText text, Options options)
    : model_(std::move(model)),
      text_(std::move(text)),
      logprobs_(options.logprobs),
      text_offset_(options.text_offset) {}

api::TokenLogprobs Answer::describe(const core::TokenEvent& event) const {
  api::TokenLogprobs told;
  for (const spec::TokenLogprob& one : event.details.logprobs) {
    api::TokenChance chance{.bytes = std::string(model_->tokenizer()->token_bytes(one.token)),
                            .logprob = one.logprob};
    if (&one == &event.details.logprobs.front()) {
      told.token = std::move(chance);
    } else {
      told.top.push_back(std::move(chance));
    }
  }
  return told;
}

/// Of the tokens whose text is shown, or will be; those of a stop string never are.
std::vector<api::TokenLogprobs> Answer::take_logprobs() {
  const bool all = text_.shown() == text_.decoded();
  std::vector<api::TokenLogprobs> taken;
  while (!held_.empty() && (all || held_.front().begin < text_.shown())) {
    taken.push_back(std::move(held_.front().logprobs));
    held_.pop_front();
  }
  return taken;
}

api::Choice Answer::push(const core::TokenEvent& event) {
  const std::size_t begin = text_.decoded();
  // An end of turn is no text and has no place among the tokens of one.
  const std::vector<TokenId>& eos = model_->eos();
  const bool is_text = event.finish != spec::FinishReason::kStop ||
                       !std::binary_search(eos.begin(), eos.end(), event.token);
  api::Choice news{.text = text_.push(event.token, event.finish), .text_offset = text_offset_};
  news.finish = text_.finish();
  if (logprobs_) {
    if (is_text && !event.details.logprobs.empty()) {
      held_.push_back({.begin = begin, .logprobs = describe(event)});
    }
    news.logprobs = take_logprobs();
    text_offset_ += api::count_characters(news.text);
  }
  return news;
}

}  // namespace heddle::gateway
