#include "text/gemma4.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "text/white_space.h"

namespace heddle::text {
namespace {

constexpr std::string_view kThoughtOpen = kGemma4Thought[0];
constexpr std::string_view kThoughtClose = kGemma4Thought[1];
constexpr std::string_view kTurnOpen = "<|turn>";
constexpr std::string_view kThoughtLabel = "thought\n";
constexpr std::string_view kCallWord = "call:";
constexpr std::string_view kBetweenThoughts = "\n\n";
constexpr int kNestedMax = 100;  // Of brackets: reading recurses.

std::string_view bare(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

/// Reads arguments and writes JSON.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view text, bool cut) : rest_(text), cut_(cut) {}

  /// All of the text as an object.
  std::optional<std::string> read() {
    skip();
    const bool object = rest_.starts_with('{') && value(0);
    skip();
    return object && rest_.empty() ? std::optional(std::move(json_)) : std::nullopt;
  }

 private:
  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kWhite), rest_.size())); }

  bool take(std::string_view text) {
    skip();
    const bool there = rest_.starts_with(text);
    rest_.remove_prefix(there ? text.size() : 0);
    return there;
  }

  /// Whether the text has ended where it was cut off, or not at all.
  [[nodiscard]] bool over() const { return cut_ && rest_.empty(); }

  bool value(int depth) {
    if (depth > kNestedMax) {
      return false;
    }
    if (take("{")) {
      return items('}', depth);
    }
    if (take("[")) {
      return items(']', depth);
    }
    return take(kGemma4Quote) ? quoted() : over() || word(",}]");
  }

  /// Of an object or a list, whose bracket has been taken.
  bool items(char close, int depth) {
    json_ += close == '}' ? '{' : '[';
    for (bool first = true;; first = false) {
      if (take({&close, 1})) {
        json_ += close;
        return true;
      }
      if (over()) {
        return true;
      }
      if (!first) {
        if (!take(",")) {
          return false;
        }
        skip();
        if (over()) {
          return true;
        }
        json_ += ',';
      }
      if ((close == '}' && !key()) || (!over() && !value(depth + 1))) {
        return false;
      }
    }
  }

  bool key() {
    const bool named = take(kGemma4Quote) ? quoted() : word(":", true);
    if (!named || over()) {
      return named;
    }
    json_ += ':';
    return take(":");
  }

  /// A string, whose opening quote has been taken.
  bool quoted() {
    const std::size_t end = rest_.find(kGemma4Quote);
    if (end == std::string_view::npos && !cut_) {
      return false;
    }
    std::string text = dumped(rest_.substr(0, end));
    if (end == std::string_view::npos) {
      text.pop_back();  // It goes on.
    }
    json_ += text;
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + kGemma4Quote.size());
    return true;
  }

  /// What stands without quotes up to one of `ends`.
  bool word(std::string_view ends, bool is_key = false) {
    if (rest_.starts_with('"')) {
      return json_string();
    }
    const std::size_t end = rest_.find_first_of(ends);
    if (end == std::string_view::npos) {
      const bool begun = cut_;  // It may go on: nothing is known of it.
      rest_ = {};
      return begun;
    }
    const std::string_view text = bare(rest_.substr(0, end));
    rest_.remove_prefix(end);
    const auto plain = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    // The library takes a zero byte for the end.
    const bool scalar = (plain.is_number() || plain.is_boolean() || plain.is_null()) &&
                        text.find('\0') == std::string_view::npos;
    if (!is_key && (scalar || text == "None")) {
      json_ += scalar ? text : "null";  // Templates print Python's word.
    } else {
      json_ += dumped(text);
    }
    return !text.empty();
  }

  /// A string that is written as JSON has it.
  bool json_string() {
    for (std::size_t at = 1; at < rest_.size(); ++at) {
      if (rest_[at] == '\\') {
        ++at;
      } else if (rest_[at] == '"') {
        const std::string_view text = rest_.substr(0, at + 1);
        rest_.remove_prefix(at + 1);
        json_ += text;
        return nlohmann::json::accept(text);
      }
    }
    json_ += rest_;
    rest_ = {};
    return cut_;
  }

  static std::string dumped(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::string_view rest_;
  bool cut_;
  std::string json_{};
};

bool names_a_call(std::string_view text) {
  return !text.empty() && text.find_first_of(" \t\r\n[]{}<>\"") == std::string_view::npos;
}

}  // namespace

std::optional<std::string> gemma4_arguments(std::string_view text, bool cut) {
  return ArgumentReader(text, cut).read();
}

PromptEnd gemma4_prompt_end(std::string_view prompt) {
  const std::size_t turn = prompt.rfind(kTurnOpen);
  const std::string_view last = turn == std::string_view::npos ? prompt : prompt.substr(turn);
  const std::size_t open = last.rfind(kThoughtOpen);
  if (open == std::string_view::npos) {
    return PromptEnd::kBefore;
  }
  const bool over = last.find(kThoughtClose, open) != std::string_view::npos;
  return over ? PromptEnd::kAfter : PromptEnd::kWithin;
}

Gemma4Parser::Gemma4Parser(bool thoughts, bool calls, std::string_view prompt)
    : thoughts_(thoughts), calls_(calls) {
  if (thoughts && gemma4_prompt_end(prompt) == PromptEnd::kWithin) {
    begin_thought();
    const std::size_t open = prompt.rfind(kThoughtOpen);
    labelled_ = !bare(prompt.substr(open + kThoughtOpen.size())).empty();
  }
}

Gemma4Parser::Found Gemma4Parser::push(std::string_view text) {
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
void Gemma4Parser::put(char c, Found& found) {
  if (state_ == State::kCall) {
    body_ += c;
    return;
  }
  if (state_ == State::kThought && !labelled_) {
    label_ += c;
    labelled_ = label_ == kThoughtLabel || !kThoughtLabel.starts_with(label_);
    if (labelled_ && label_ != kThoughtLabel) {
      for (const char said : std::exchange(label_, {})) {
        put(said, found);
      }
    }
    return;
  }
  if (is_white(c)) {
    white_ += c;
    return;
  }
  say({&c, 1}, found);
}

/// Text or thought that begins with no white space, behind what was held back.
void Gemma4Parser::say(std::string_view text, Found& found) {
  const std::string white = std::exchange(white_, {});
  if (state_ == State::kThought) {
    if (told_) {
      found.reasoning += white;
    } else if (thought_) {
      found.reasoning += kBetweenThoughts;
    }
    told_ = thought_ = true;
    found.reasoning += text;
    return;
  }
  if (!std::exchange(after_, false)) {
    found.text += white;
  }
  found.text += text;
}

void Gemma4Parser::begin_thought() {
  state_ = State::kThought;
  told_ = labelled_ = false;
  label_.clear();
}

void Gemma4Parser::meet(std::string_view marker, Found& found) {
  if (state_ == State::kCall) {
    if (marker == kGemma4CallClose) {
      end_call(true, false, found);
    } else {
      body_ += marker;
    }
    return;
  }
  if (marker == kThoughtOpen && thoughts_) {
    white_.clear();
    begin_thought();
  } else if (marker == kThoughtClose && thoughts_) {
    // Behind no thought it means nothing.
    white_.clear();
    state_ = State::kText;
    after_ = true;
  } else if (marker == kGemma4CallOpen && calls_) {
    white_.clear();
    state_ = State::kCall;
    body_.clear();
  } else {
    for (const char c : marker) {
      put(c, found);
    }
  }
}

/// The body of a call is whole, or the answer has ended.
void Gemma4Parser::end_call(bool closed, bool cut, Found& found) {
  const std::string body = std::exchange(body_, {});
  state_ = State::kText;
  std::string_view rest = bare(body);
  if (cut && kCallWord.starts_with(rest)) {
    return;  // Not even its name is there.
  }
  const bool named = rest.starts_with(kCallWord);
  rest.remove_prefix(named ? kCallWord.size() : 0);
  const std::size_t begin = std::min(rest.find('{'), rest.size());
  const std::string_view name = bare(rest.substr(0, begin));
  const std::string_view arguments = rest.substr(begin);
  ToolCall call{.name = std::string(name)};
  std::optional<std::string> json = gemma4_arguments(arguments);
  if (!json && cut) {
    json = arguments.empty() ? std::string() : gemma4_arguments(arguments, true);
    call.whole = false;
  }
  if (!named || !names_a_call(name) || !json) {
    say(std::string(kGemma4CallOpen) + body + std::string(closed ? kGemma4CallClose : ""), found);
    return;
  }
  after_ = true;
  call.arguments = *std::move(json);
  found.calls.push_back(std::move(call));
}

Gemma4Parser::Found Gemma4Parser::finish(bool cut) {
  Found found;
  scanner_.finish([&](char plain) { put(plain, found); });
  if (state_ == State::kCall) {
    end_call(false, cut, found);
  } else if (state_ == State::kText && !after_ && !white_.empty()) {
    say("", found);
  }
  return found;
}

}  // namespace heddle::text
