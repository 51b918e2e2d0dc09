#include "gateway/answer_text.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::gateway {

Result<AnswerText> AnswerText::make(std::shared_ptr<const text::TextModel> model,
                                    const std::vector<std::string>& stop) {
  Result<text::StopStrings> strings = text::StopStrings::make(stop);
  if (!strings) {
    return strings.error();
  }
  return AnswerText(std::move(model), std::move(strings).value());
}

AnswerText::AnswerText(std::shared_ptr<const text::TextModel> model, text::StopStrings stop)
    : model_(std::move(model)),
      detokenizer_(model_->tokenizer(), text::ShowSpecial::kNo),
      stop_(std::move(stop)) {}

std::string AnswerText::pass(const std::string& text) {
  decoded_ += text.size();
  text::StopStrings::Found found = stop_.push(text);
  if (found.stop) {
    finish_ = spec::FinishReason::kStop;
    stopped_by_string_ = true;
  }
  return std::move(found.text);
}

std::string AnswerText::push(TokenId token, spec::FinishReason finish) {
  HEDDLE_CHECK(!ended());
  ++tokens_;
  // An end of turn is no text, even in vocabularies that do not call it special.
  const std::vector<TokenId>& eos = model_->eos();
  const bool shown =
      finish != spec::FinishReason::kStop || !std::binary_search(eos.begin(), eos.end(), token);
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
