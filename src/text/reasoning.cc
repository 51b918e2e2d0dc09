#include "text/reasoning.h"

#include <algorithm>
#include <utility>

#include "text/white_space.h"

namespace heddle::text {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

}  // namespace

PromptEnd prompt_end(std::string_view prompt) {
  const std::string_view text = prompt.substr(0, prompt.find_last_not_of(kWhite) + 1);
  return text.ends_with(kOpen)    ? PromptEnd::kWithin
         : text.ends_with(kClose) ? PromptEnd::kAfter
                                  : PromptEnd::kBefore;
}

ReasoningSplitter::ReasoningSplitter(ReasoningFormat format, std::string_view prompt)
    : state_(format == ReasoningFormat::kNone           ? State::kText
             : prompt_end(prompt) == PromptEnd::kWithin ? State::kThinking
                                                        : State::kStart) {}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  Parts parts;
  if (state_ == State::kText) {
    parts.text = text;
    return parts;
  }
  for (const char c : text) {
    step(c, parts);
  }
  return parts;
}

void ReasoningSplitter::step(char c, Parts& parts) {
  switch (state_) {
    case State::kStart: {
      held_ += c;
      white_ = std::min(held_.find_first_not_of(kWhite, white_), held_.size());
      if (white_ == held_.size()) {
        return;
      }
      const std::string_view rest = std::string_view(held_).substr(white_);
      if (rest == kOpen) {
        held_.clear();
        white_ = 0;
        state_ = State::kThinking;
      } else if (!kOpen.starts_with(rest)) {
        parts.text += std::exchange(held_, {});
        white_ = 0;
        state_ = State::kText;
      }
      return;
    }
    case State::kThinking:
      thinking_step(c, parts);
      return;
    case State::kAfter:
      if (!is_white(c)) {
        parts.text += c;
        state_ = State::kText;
      }
      return;
    case State::kText:
      parts.text += c;
      return;
  }
}

/// held_ is white space and then a proper beginning of the closing marker.
void ReasoningSplitter::thinking_step(char c, Parts& parts) {
  held_ += c;
  const std::size_t begin = std::min(held_.find_first_not_of(kWhite, white_), held_.size());
  white_ = begin;
  if (begin == held_.size()) {
    return;
  }
  std::string_view rest = std::string_view(held_).substr(begin);
  if (rest == kClose) {
    held_.clear();
    white_ = 0;
    state_ = State::kAfter;
    return;
  }
  if (kClose.starts_with(rest)) {
    return;
  }
  // The marker holds '<' only once and no white space: a new beginning is the last character.
  const std::size_t keep = rest.size() > 1 && (is_white(c) || c == kClose[0]) ? 1 : 0;
  parts.reasoning.append(held_, thought_ ? 0 : begin, held_.size() - keep - (thought_ ? 0 : begin));
  thought_ = true;
  held_.erase(0, held_.size() - keep);
  white_ = 0;
}

ReasoningSplitter::Parts ReasoningSplitter::finish() {
  Parts parts;
  if (state_ == State::kStart) {
    parts.text = std::exchange(held_, {});
  } else if (held_.find_first_not_of(kWhite) != std::string::npos) {
    parts.reasoning = std::exchange(held_, {});
  }
  return parts;
}

}  // namespace heddle::text
