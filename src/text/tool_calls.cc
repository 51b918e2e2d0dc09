#include "text/tool_calls.h"

#include <algorithm>
#include <utility>

#include "text/white_space.h"

namespace heddle::text {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kHermesClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
constexpr std::string_view kMistralArguments = "[ARGS]";
constexpr std::size_t kNameMax = 256;
// A call whose arguments do not begin within so many bytes is given whole: the search for them
// reads all of them anew.
constexpr std::size_t kHeadMax = 1024;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

std::string_view opening(ToolFormat format) {
  return format == ToolFormat::kMistral ? kMistralOpen : kHermesOpen;
}

/// Whether calls have no opening marker, and so stand before all text.
bool from_the_start(ToolFormat format) {
  return format == ToolFormat::kLlama3 || format == ToolFormat::kGeneric;
}

/// What may stand before a call of a format without an opening marker.
std::string_view around_calls(ToolFormat format, bool called) {
  if (format == ToolFormat::kGeneric) {
    return called ? " \t\r\n,]" : " \t\r\n[";
  }
  return called ? " \t\r\n;" : kWhite;
}

bool may_be_a_name(std::string_view text) {
  return !text.empty() && text.find_first_of("[]{}\"") == std::string_view::npos;
}

/// The name that stands between Mistral's marker and the object of the arguments; empty where none
/// does.
std::string_view mistral_name(std::string_view before) {
  const std::string_view name = trimmed(before.substr(0, before.find(kMistralArguments)));
  return may_be_a_name(name) ? name : std::string_view();
}

/// A name and, after it, the object of its arguments.
std::optional<std::vector<ToolCall>> named_call(std::string_view before, std::string_view json) {
  const std::string_view name = mistral_name(before);
  if (name.empty() || !is_json_object(json)) {
    return std::nullopt;
  }
  return std::vector<ToolCall>{{.name = std::string(name), .arguments = dense_json(json)}};
}

}  // namespace

ToolCallParser::ToolCallParser(ToolFormat format, GiveCalls give)
    : format_(format),
      give_(give),
      state_(from_the_start(format)        ? State::kStart
             : format == ToolFormat::kNone ? State::kPlain
                                           : State::kText) {}

void ToolCallParser::show(std::string_view text, Found& found) {
  found.text += text;
}

ToolCallParser::Found ToolCallParser::push(std::string_view text) {
  Found found;
  for (const char c : text) {
    step(c, found);
  }
  return found;
}

void ToolCallParser::step(char c, Found& found) {
  switch (state_) {
    case State::kText:
      text_step(c, found);
      break;
    case State::kStart:
      start_step(c, found);
      break;
    case State::kList:
      list_step(c, found);
      break;
    case State::kBody:
      if (format_ == ToolFormat::kMistral && !list_) {
        mistral_step(c, found);
      } else {
        body_step(c, found);
      }
      break;
    case State::kArguments:
      arguments_step(c, found);
      break;
    case State::kTail:
      tail_step(c);
      break;
    case State::kPlain:
      found.text += c;
      break;
  }
}

bool ToolCallParser::begin_arguments(Found& found) {
  if (give_ == GiveCalls::kWhole || body_.back() != '{') {
    return false;
  }
  const std::string_view body = body_;
  std::string name;
  if (named_) {
    if (json_ + 1 == body.size()) {
      name = mistral_name(body.substr(opened_, json_ - opened_));
    }
  } else {
    const std::string_view head = body.substr(format_ == ToolFormat::kHermes ? opened_ : json_);
    if (head.size() <= kHeadMax) {
      name = name_before_arguments(head).value_or("");
    }
  }
  if (name.empty()) {
    return false;
  }
  quoted_ = !named_ && body.ends_with("\"{");
  reader_ = {};
  called_ = true;
  pieces_.begin(std::move(name), found.calls);
  body_.clear();
  state_ = State::kArguments;
  return true;
}

void ToolCallParser::arguments_step(char c, Found& found) {
  // Outside of strings no JSON has it: the call is over, with a bracket missing.
  if (format_ == ToolFormat::kHermes && c == '<' && !pieces_.in_string()) {
    state_ = State::kTail;
    tail_step(c);
    return;
  }
  if (!quoted_) {
    if (pieces_.push(c, found.calls)) {
      begin_tail();
    }
    return;
  }
  std::string text;
  if (!reader_.push(c, text)) {  // The string ends, with a bracket missing.
    quoted_ = false;
    begin_tail();
    return;
  }
  for (const char resolved : text) {
    if (pieces_.push(resolved, found.calls)) {
      begin_tail();
      return;
    }
  }
}

bool ToolCallParser::ends_with_json() const {
  return from_the_start(format_) || format_ == ToolFormat::kMistral;
}

/// What is behind the arguments is not given.
void ToolCallParser::begin_tail() {
  if (named_) {
    end_call();
    return;
  }
  state_ = State::kTail;
  scanner_ = {};
  scanner_.push('{');  // The one that the call itself began with.
  if (quoted_) {
    scanner_.push('"');
  }
}

void ToolCallParser::tail_step(char c) {
  if (ends_with_json()) {
    if (scanner_.push(c)) {
      end_call();
    }
    return;
  }
  body_ += c;
  if (body_.ends_with(kHermesClose)) {
    end_call();
  } else if (body_.size() > kHermesClose.size()) {
    body_.erase(0, 1);
  }
}

void ToolCallParser::end_call() {
  body_.clear();
  json_ = 0;
  state_ = from_the_start(format_) ? State::kStart : list_ ? State::kList : State::kText;
}

/// held_ is white space and then a proper beginning of the marker.
void ToolCallParser::text_step(char c, Found& found) {
  const std::string_view marker = opening(format_);
  held_ += c;
  for (;;) {
    white_ = std::min(held_.find_first_not_of(kWhite, white_), held_.size());
    if (white_ == held_.size()) {
      return;
    }
    const std::string_view rest = std::string_view(held_).substr(white_);
    if (rest == marker) {
      body_ = std::exchange(held_, {});
      opened_ = body_.size();
      named_ = false;
      list_ = false;
      white_ = 0;
      json_ = 0;
      scanner_ = {};
      state_ = State::kBody;
      return;
    }
    if (marker.starts_with(rest)) {
      return;
    }
    // No call: all up to the next place where one may begin is text. No marker holds white space or
    // its own first character again, so that is where the new character stands, or behind it.
    const bool may_begin = is_white(c) || c == marker[0];
    const std::size_t keep = may_begin && rest.size() > 1 ? 1 : 0;
    show(std::string_view(held_).substr(0, held_.size() - keep), found);
    held_.erase(0, held_.size() - keep);
    white_ = 0;
    if (keep == 0) {
      return;
    }
  }
}

/// Llama 3 calls from the start, and after a call with ';' or nothing between; the generic format
/// has a call, or a list of them.
void ToolCallParser::start_step(char c, Found& found) {
  held_ += c;
  white_ = std::min(held_.find_first_not_of(around_calls(format_, called_), white_), held_.size());
  if (white_ == held_.size()) {
    return;
  }
  const std::string_view rest = std::string_view(held_).substr(white_);
  if (format_ == ToolFormat::kLlama3) {
    const bool tagged = rest.starts_with(kPythonTag);
    if (tagged ? rest == kPythonTag || is_white(c) : kPythonTag.starts_with(rest)) {
      return;
    }
  }
  if (c != '{') {
    show(held_, found);
    held_.clear();
    white_ = 0;
    state_ = State::kPlain;
    return;
  }
  json_ = held_.size() - 1;
  white_ = 0;
  body_ = std::exchange(held_, {});
  scanner_ = {};
  scanner_.push(c);
  state_ = State::kBody;
}

void ToolCallParser::body_step(char c, Found& found) {
  body_ += c;
  if (begin_arguments(found)) {
    return;
  }
  if (format_ != ToolFormat::kHermes) {
    if (!scanner_.push(c)) {
      return;
    }
    std::optional<std::vector<ToolCall>> calls =
        parse_tool_calls(std::string_view(body_).substr(json_));
    if (list_) {
      list_ = calls.has_value();
      close(std::move(calls), list_ ? State::kList : State::kText, found);
      return;
    }
    close(std::move(calls), State::kStart, found);
    if (!called_) {
      state_ = State::kPlain;  // It was JSON, but no call: so is the rest.
    }
    return;
  }
  if (c == '>' && body_.ends_with(kHermesClose)) {
    const std::size_t begin = body_.find(kHermesOpen) + kHermesOpen.size();
    const auto json =
        std::string_view(body_).substr(begin, body_.size() - begin - kHermesClose.size());
    close(parse_tool_calls(trimmed(json)), State::kText, found);
  }
}

void ToolCallParser::mistral_step(char c, Found& found) {
  body_ += c;
  const auto before = trimmed(std::string_view(body_).substr(opened_));
  if (json_ == 0) {
    const bool list = c == '[' && before == "[";
    if (list && give_ == GiveCalls::kAsTheyCome) {
      list_ = true;
      state_ = State::kList;
    } else if (list || c == '{') {
      json_ = body_.size() - 1;
      named_ = !list && before != "{";
      scanner_ = {};
      scanner_.push(c);
      (void)begin_arguments(found);
    } else if (body_.size() - opened_ > kNameMax) {
      close(std::nullopt, State::kText, found);
    }
    return;
  }
  if (begin_arguments(found) || !scanner_.push(c)) {
    return;
  }
  const auto json = std::string_view(body_).substr(json_);
  const auto name = std::string_view(body_).substr(opened_, json_ - opened_);
  close(named_ ? named_call(name, json) : parse_tool_calls(json), State::kText, found);
}

/// body_ is what came behind the last call that was given, or all of the list.
void ToolCallParser::list_step(char c, Found& found) {
  body_ += c;
  const bool begins = body_.find('[') != std::string::npos;
  if (c == '{') {
    json_ = body_.size() - 1;
    scanner_ = {};
    scanner_.push(c);
    state_ = State::kBody;
  } else if (c == ']' && !begins) {
    list_ = false;
    end_call();
  } else if (!is_white(c) && (c != ',' || begins)) {
    list_ = false;
    close(std::nullopt, State::kText, found);
  }
}

void ToolCallParser::close(std::optional<std::vector<ToolCall>> calls, State next, Found& found) {
  if (calls) {
    called_ = true;
    for (ToolCall& call : *calls) {
      found.calls.push_back(std::move(call));
    }
  } else {
    show(body_, found);
  }
  body_.clear();
  json_ = 0;
  state_ = next;
}

std::optional<std::vector<ToolCall>> ToolCallParser::cut_calls() const {
  if (from_the_start(format_)) {
    const std::optional<ToolCall> call = begun_call(std::string_view(body_).substr(json_));
    // Without a marker, an object with a name alone may be any.
    return call && (called_ || !call->arguments.empty())
               ? std::optional(std::vector<ToolCall>{*call})
               : std::nullopt;
  }
  if (list_) {
    return begun_calls(std::string_view(body_).substr(json_));
  }
  const std::string_view body = body_;
  if (named_) {
    const std::string_view name = mistral_name(body.substr(opened_, json_ - opened_));
    return name.empty()
               ? std::nullopt
               : std::optional(std::vector<ToolCall>{{.name = std::string(name),
                                                      .arguments = dense_json(body.substr(json_)),
                                                      .whole = false}});
  }
  const std::size_t begin = std::min(body.find_first_not_of(kWhite, opened_), body.size());
  const std::string_view rest = body.substr(begin);  // White space at its end may be of a string.
  if (format_ == ToolFormat::kHermes) {
    for (std::size_t begun = kHermesClose.size() - 1; begun > 0; --begun) {
      // The call is whole where it was the closing marker that was cut off.
      if (rest.ends_with(kHermesClose.substr(0, begun))) {
        if (auto whole = parse_tool_calls(trimmed(rest.substr(0, rest.size() - begun)))) {
          return whole;
        }
      }
    }
  }
  const bool name_only =
      format_ == ToolFormat::kMistral && json_ == 0 && rest.find('{') == rest.npos;
  if (rest.empty() || name_only) {
    return std::vector<ToolCall>{};
  }
  return begun_calls(rest);
}

ToolCallParser::Found ToolCallParser::finish(bool cut) {
  Found found;
  if (state_ == State::kList && !cut && body_.find('[') != std::string::npos) {
    show(body_, found);
  }
  if (state_ == State::kBody) {
    std::optional<std::vector<ToolCall>> calls;
    if (format_ == ToolFormat::kHermes) {
      const std::size_t begin = body_.find(kHermesOpen) + kHermesOpen.size();
      calls = parse_tool_calls(trimmed(std::string_view(body_).substr(begin)));
    }
    if (!calls && cut) {
      calls = cut_calls();
      if (calls) {
        std::erase_if(*calls, [](const ToolCall& call) { return call.name.empty(); });
      }
    }
    close(std::move(calls), State::kText, found);
  }
  const std::string_view around =
      format_ == ToolFormat::kGeneric ? around_calls(format_, called_) : kWhite;
  const bool nothing = held_.find_first_not_of(around) == std::string::npos;
  if (!called_ || !nothing) {
    show(held_, found);
  }
  held_.clear();
  return found;
}

}  // namespace heddle::text
