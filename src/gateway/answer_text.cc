#include "gateway/answer_text.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::gateway {

Result<AnswerText> AnswerText::make(std::shared_ptr<const text::TextModel> model,
                                    TextEnds ends,
                                    std::span<const std::string_view> markers) {
  Result<text::StopStrings> strings = text::StopStrings::make(ends.stop);
  if (!strings) {
    return strings.error();
  }
  std::vector<TokenId> shown;
  for (const std::string_view marker : markers) {
    if (const std::optional<TokenId> id = model->tokenizer()->token_to_id(marker)) {
      shown.push_back(*id);
    }
  }
  return AnswerText(
      std::move(model), std::move(strings).value(), std::move(ends), std::move(shown));
}

AnswerText::AnswerText(std::shared_ptr<const text::TextModel> model,
                       text::StopStrings stop,
                       TextEnds ends,
                       std::vector<TokenId> markers)
    : model_(std::move(model)),
      detokenizer_(model_->tokenizer(), text::ShowSpecial::kYes),
      stop_(std::move(stop)),
      ends_(std::move(ends)),
      markers_(std::move(markers)) {}

std::string AnswerText::pass(std::string text) {
  decoded_ += text.size();
  if (tokens_ <= ends_.min_tokens) {
    return text;
  }
  text::StopStrings::Found found = stop_.push(text);
  if (found.stop) {
    finish_ = spec::FinishReason::kStop;
    stopped_by_ = found.stop;
    found.text += ends_.include_stop ? ends_.stop[*found.stop] : "";
  }
  return std::move(found.text);
}

std::string AnswerText::push(TokenId token, spec::FinishReason finish) {
  HEDDLE_CHECK(!ended());
  ++tokens_;
  // An end of turn is no text, even in vocabularies that do not call it special.
  const std::vector<TokenId>& eos = model_->eos();
  const bool ends =
      finish == spec::FinishReason::kStop && std::binary_search(eos.begin(), eos.end(), token);
  const bool hidden = model_->tokenizer()->is_special(token) &&
                      std::find(markers_.begin(), markers_.end(), token) == markers_.end();
  const bool shown = !ends && !hidden;
  std::string text;
  if (shown) {
    text = pass(detokenizer_.push(token));
  }
  if (finish != spec::FinishReason::kNone && !ended()) {
    text += pass(detokenizer_.flush());
    if (!ended()) {
      text += stop_.flush();
      finish_ = finish;
    }
  }
  shown_ += text.size();
  return text;
}

}  // namespace heddle::gateway
