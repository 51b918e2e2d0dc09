#include "text/harmony.h"

#include <algorithm>
#include <utility>

#include "text/white_space.h"

namespace heddle::text {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kTo = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kBetween = "\n\n";
constexpr std::size_t kHeadMax = 1024;  // Longer ones are no heads; what is beyond is dropped.

std::string_view without_white(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

/// The word that `text` begins with, white space before it left out.
std::string_view first_word(std::string_view text) {
  text = without_white(text);
  return text.substr(0, std::min(text.find_first_of(kWhite), text.find('<')));
}

/// What the head has behind the last `key`, a word of its own; empty where there is none.
std::string_view value_of(std::string_view head, std::string_view key) {
  for (std::size_t at = head.rfind(key); at != std::string_view::npos;
       at = head.rfind(key, at - 1)) {
    if (at == 0 || key != kTo || is_white(head[at - 1]) || head[at - 1] == '>') {
      return first_word(head.substr(at + key.size()));
    }
  }
  return {};
}

}  // namespace

HarmonyParser::HarmonyParser(bool thoughts, bool calls, std::string_view prompt, GiveCalls give)
    : thoughts_(thoughts), calls_(calls), give_(give) {
  const std::size_t start = prompt.rfind(kStart);
  if (start == std::string_view::npos) {
    return;
  }
  const std::string_view last = prompt.substr(start + kStart.size());
  const std::size_t message = last.find(kMessage);
  head_ = last.substr(0, message);
  if (message != std::string_view::npos) {
    begin_message();
  } else if (last.find(kChannel) != std::string_view::npos) {
    state_ = State::kHead;
  } else {
    head_.clear();
  }
}

HarmonyParser::Found HarmonyParser::push(std::string_view text) {
  Found found;
  for (const char c : text) {
    scanner_.push(
        c,
        [&](char plain) { put(plain, found); },
        [&](std::string_view marker) { meet(marker, found); });
  }
  return found;
}

/// A character that is of no marker.
void HarmonyParser::put(char c, Found& found) {
  switch (state_) {
    case State::kStart: {
      head_ += c;
      const std::string_view begun = without_white(head_);
      if (!kTo.starts_with(begun) && !begun.starts_with(kTo)) {
        state_ = State::kText;
        show(std::exchange(head_, {}), text_, found.text);
      }
      return;
    }
    case State::kHead:
      if (head_.size() < kHeadMax) {
        head_ += c;
      }
      return;
    case State::kThought:
      show({&c, 1}, thought_, found.reasoning);
      return;
    case State::kText:
      show({&c, 1}, text_, found.text);
      return;
    case State::kCall:
      call_step(c, found);
      return;
    case State::kArguments:
      if (pieces_.push(c, found.calls)) {
        state_ = State::kTail;
      }
      return;
    case State::kTail:
      return;
  }
}

/// Gives the call as soon as its arguments begin, where it is to be given as it comes.
void HarmonyParser::call_step(char c, Found& found) {
  if (give_ == GiveCalls::kAsTheyCome && c == '{' && without_white(body_).empty()) {
    body_.clear();
    pieces_.begin(std::exchange(name_, {}), found.calls);
    state_ = State::kArguments;
    return;
  }
  body_ += c;
}

void HarmonyParser::meet(std::string_view marker, Found& found) {
  const bool in_head = state_ == State::kStart || state_ == State::kHead;
  if (marker == kMessage) {
    if (in_head) {
      begin_message();
    }
    return;
  }
  if (marker != kChannel && marker != kConstrain) {  // It begins or ends a message.
    end_message(false, found);
    state_ = State::kHead;
    return;
  }
  if (!in_head) {
    end_message(false, found);
  }
  state_ = State::kHead;
  head_ += marker;
}

/// The head is whole.
void HarmonyParser::begin_message() {
  const std::string head = std::exchange(head_, {});
  const std::string_view recipient = value_of(head, kTo);
  name_ = recipient.substr(recipient.starts_with(kFunctions) ? kFunctions.size() : 0);
  if (!name_.empty() && calls_) {
    state_ = State::kCall;
    return;
  }
  const bool thought = value_of(head, kChannel) == "analysis" && recipient.empty() && thoughts_;
  state_ = thought ? State::kThought : State::kText;
  Stream& stream = thought ? thought_ : text_;
  stream.next = stream.told;
}

/// What it leaves is an empty head.
void HarmonyParser::end_message(bool cut, Found& found) {
  head_.clear();
  if (state_ != State::kCall) {
    return;
  }
  const std::string body = std::exchange(body_, {});
  const std::string_view arguments = without_white(body);
  ToolCall call{.name = std::exchange(name_, {}), .arguments = dense_json(arguments)};
  if (is_json_object(arguments) || (arguments.empty() && !cut)) {
    call.arguments = arguments.empty() ? "{}" : call.arguments;
  } else if (cut && arguments.empty()) {
    call.whole = false;
  } else if (cut && arguments.starts_with('{')) {
    pieces_.begin(std::move(call.name), found.calls);
    // White space at the end may be of a string.
    const std::string_view rest = std::string_view(body).substr(body.find('{') + 1);
    (void)std::ranges::any_of(rest, [&](char c) { return pieces_.push(c, found.calls); });
    return;
  } else {
    text_.next = text_.told;
    show(body, text_, found.text);
    return;
  }
  found.calls.push_back(std::move(call));
}

HarmonyParser::Found HarmonyParser::finish(bool cut) {
  Found found;
  scanner_.finish([&](char plain) { put(plain, found); });
  if (state_ == State::kStart) {
    show(std::exchange(head_, {}), text_, found.text);
  }
  end_message(cut, found);
  return found;
}

void HarmonyParser::show(std::string_view text, Stream& stream, std::string& target) {
  if (text.empty()) {
    return;
  }
  if (std::exchange(stream.next, false)) {
    target += kBetween;
  }
  target += text;
  stream.told = true;
}

}  // namespace heddle::text
