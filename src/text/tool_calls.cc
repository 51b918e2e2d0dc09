#include "text/tool_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "text/white_space.h"

namespace heddle::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kHermesClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
constexpr std::string_view kMistralArguments = "[ARGS]";
constexpr std::size_t kNameMax = 256;
constexpr int kDepthMax = 100;  // Of brackets: writing JSON again recurses.

Json parse(std::string_view json) {
  if (JsonScanner::depth(json) > kDepthMax) {
    return Json(Json::value_t::discarded);
  }
  return Json::parse(json, nullptr, /*allow_exceptions=*/false);
}

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

std::optional<ToolCall> call_of(const Json& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) {
    return std::nullopt;
  }
  ToolCall call{.name = value["name"].get<std::string>(), .arguments = "{}"};
  if (call.name.empty()) {
    return std::nullopt;
  }
  for (const char* key : {"arguments", "parameters"}) {
    if (!value.contains(key) || value[key].is_null()) {
      continue;
    }
    const Json& arguments = value[key];
    if (arguments.is_object()) {
      call.arguments = arguments.dump();
      return call;
    }
    // Some models write the object as a string, as OpenAI's API does.
    if (arguments.is_string() && parse(arguments.get<std::string>()).is_object()) {
      call.arguments = arguments.get<std::string>();
      return call;
    }
    return std::nullopt;
  }
  return call;
}

std::string_view past_white(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kWhite), text.size()));
}

/// Takes a string that `text` begins with, escapes as they are; nothing where it is not whole.
std::optional<std::string_view> take_string(std::string_view& text) {
  for (std::size_t at = 1; text.starts_with('"') && at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      const std::string_view inside = text.substr(1, at - 1);
      text.remove_prefix(at + 1);
      return inside;
    }
  }
  return std::nullopt;
}

/// Takes `text` from the front of `from`, and white space before it.
bool take(std::string_view text, std::string_view& from) {
  from = past_white(from);
  if (!from.starts_with(text)) {
    return false;
  }
  from.remove_prefix(text.size());
  return true;
}

/// Whether `json` is the beginning of `{"name": "`.
bool begins_a_name(std::string_view json) {
  std::string dense;
  std::remove_copy_if(json.begin(), json.end(), std::back_inserter(dense), is_white);
  constexpr std::string_view kHead = "{\"name\":\"";
  return kHead.starts_with(dense) || dense.starts_with(kHead);
}

/// The beginning of an object, or of one that is written as a string; nothing where it is neither.
std::optional<std::string> begun_arguments(std::string_view json) {
  if (json.empty() || json.front() == '{') {
    return std::string(json);
  }
  if (json.front() != '"') {
    return std::nullopt;
  }
  std::string_view inside = json.substr(1);
  if (const std::optional<std::string_view> whole = take_string(json)) {
    inside = *whole;
  }
  // An escape that is cut off has six characters at most.
  for (std::size_t lost = 0; lost < 6 && lost <= inside.size(); ++lost) {
    const Json text = parse("\"" + std::string(inside.substr(0, inside.size() - lost)) + "\"");
    if (text.is_string()) {
      std::string object = text.get<std::string>();
      return object.empty() || object.front() == '{' ? std::optional(std::move(object))
                                                     : std::nullopt;
    }
  }
  return std::nullopt;
}

/// A call that is only begun, with its name first, as models are trained to write it. Nothing where
/// it is none; one without a name where that is not whole.
std::optional<ToolCall> begun_call(std::string_view json) {
  std::string_view rest = json;
  const bool opened = take("{", rest);
  rest = past_white(rest);
  if (!opened || take_string(rest) != "name" || !take(":", rest)) {
    return begins_a_name(json) ? std::optional(ToolCall{.whole = false}) : std::nullopt;
  }
  rest = past_white(rest);
  const std::optional<std::string_view> name = take_string(rest);
  if (!name) {
    return begins_a_name(json) ? std::optional(ToolCall{.whole = false}) : std::nullopt;
  }
  const Json spelled = parse("\"" + std::string(*name) + "\"");  // Escapes are its.
  ToolCall call{.name = spelled.is_string() ? spelled.get<std::string>() : std::string(*name),
                .whole = false};
  if (!take(",", rest)) {
    return past_white(rest).empty() ? std::optional(call) : std::nullopt;
  }
  rest = past_white(rest);
  const std::string_view key = rest;
  const std::optional<std::string_view> named = take_string(rest);
  if (!named) {
    const std::string_view begun = key.substr(std::min<std::size_t>(1, key.size()));
    const bool fits = std::string_view("arguments").starts_with(begun) ||
                      std::string_view("parameters").starts_with(begun);
    return fits ? std::optional(call) : std::nullopt;
  }
  if (*named != "arguments" && *named != "parameters") {
    return std::nullopt;
  }
  (void)take(":", rest);
  std::optional<std::string> arguments = begun_arguments(past_white(rest));
  if (!arguments) {
    return std::nullopt;
  }
  call.arguments = *std::move(arguments);
  return call;
}

/// The calls of a list that is cut off: those that are whole, and the last.
std::optional<std::vector<ToolCall>> begun_calls(std::string_view json) {
  std::vector<ToolCall> calls;
  for (json = past_white(json); !json.empty(); json = past_white(json)) {
    if (json.front() != '{') {
      if (json.front() != '[' && json.front() != ',') {
        return std::nullopt;
      }
      json.remove_prefix(1);
      continue;
    }
    JsonScanner scanner;
    std::size_t end = 0;
    while (end < json.size() && !scanner.push(json[end])) {
      ++end;
    }
    std::optional<ToolCall> call =
        end < json.size() ? call_of(parse(json.substr(0, end + 1))) : begun_call(json);
    if (!call) {
      return std::nullopt;
    }
    calls.push_back(*std::move(call));
    json.remove_prefix(std::min(end + 1, json.size()));
  }
  return calls;
}

bool may_be_a_name(std::string_view text) {
  return !text.empty() && text.find_first_of("[]{}\"") == std::string_view::npos;
}

/// A name and, after it, the object of its arguments.
std::optional<std::vector<ToolCall>> named_call(std::string_view name, std::string_view json) {
  if (const std::size_t mark = name.find(kMistralArguments); mark != std::string_view::npos) {
    name = name.substr(0, mark);
  }
  name = trimmed(name);
  if (!may_be_a_name(name) || !parse(json).is_object()) {
    return std::nullopt;
  }
  return std::vector<ToolCall>{{.name = std::string(name), .arguments = std::string(json)}};
}

}  // namespace

bool is_json_object(std::string_view json) {
  return parse(json).is_object();
}

std::optional<std::vector<ToolCall>> parse_tool_calls(std::string_view json) {
  const Json value = parse(json);
  std::vector<ToolCall> calls;
  if (value.is_array()) {
    for (const Json& item : value) {
      std::optional<ToolCall> call = call_of(item);
      if (!call) {
        return std::nullopt;
      }
      calls.push_back(*std::move(call));
    }
  } else if (std::optional<ToolCall> call = call_of(value)) {
    calls.push_back(*std::move(call));
  }
  return calls.empty() ? std::nullopt : std::optional(std::move(calls));
}

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
    case State::kBody:
      if (format_ == ToolFormat::kMistral) {
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
  if (give_ == GiveCalls::kWhole || tried_ || body_.back() != '{') {
    return false;
  }
  // An object is a value, and the first one is the arguments; a string of one has its quote before.
  const auto before_it = std::string_view(body_).substr(0, body_.size() - 1);
  const std::size_t last = before_it.find_last_not_of(kWhite);
  if (format_ != ToolFormat::kMistral && (last == std::string::npos || body_[last] != ':')) {
    return false;
  }
  tried_ = true;
  std::optional<ToolCall> call;
  if (format_ == ToolFormat::kMistral && json_ > 0) {
    const auto before = std::string_view(body_).substr(opened_, json_ - opened_);
    const std::string_view name = trimmed(before.substr(0, before.find(kMistralArguments)));
    if (json_ + 1 == body_.size() && may_be_a_name(name)) {
      call = ToolCall{.name = std::string(name), .arguments = "{", .whole = false};
    }
  } else if (format_ != ToolFormat::kMistral) {
    const std::size_t begin = from_the_start(format_) ? json_ : opened_;
    call = begun_call(past_white(std::string_view(body_).substr(begin)));
  }
  if (!call || call->name.empty() || call->arguments != "{") {
    return false;
  }
  called_ = true;
  found.calls.push_back(*std::move(call));
  body_.clear();
  scanner_ = {};
  scanner_.push('{');
  state_ = State::kArguments;
  return true;
}

void ToolCallParser::arguments_step(char c, Found& found) {
  // Outside of strings no JSON has it: the call is over, with a bracket missing.
  if (format_ == ToolFormat::kHermes && c == '<' && !scanner_.in_string()) {
    state_ = State::kTail;
    tail_step(c);
    return;
  }
  if (!scanner_.in_string() && is_white(c)) {
    return;  // As in calls that are given whole.
  }
  if (found.calls.empty()) {
    found.calls.push_back({.whole = false, .continues = true});
  }
  found.calls.back().arguments += c;
  if (!scanner_.push(c)) {
    return;
  }
  found.calls.back().whole = true;
  if (format_ == ToolFormat::kMistral) {
    end_call();
    return;
  }
  state_ = State::kTail;
  scanner_ = {};
  scanner_.push('{');  // The one that the call itself began with.
}

void ToolCallParser::tail_step(char c) {
  if (from_the_start(format_)) {
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
  state_ = from_the_start(format_) ? State::kStart : State::kText;
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
      tried_ = false;
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
  tried_ = false;
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
  if (from_the_start(format_)) {
    if (scanner_.push(c)) {
      const auto json = std::string_view(body_).substr(json_);
      close(parse_tool_calls(json), State::kStart, found);
      if (!called_) {
        state_ = State::kPlain;  // It was JSON, but no call: so is the rest.
      }
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
  const std::size_t begin = opened_;
  if (json_ == 0) {
    const auto before = trimmed(std::string_view(body_).substr(begin));
    const bool list = c == '[' && before == "[";
    if (list || c == '{') {
      json_ = body_.size() - 1;
      scanner_ = {};
      scanner_.push(c);
      (void)begin_arguments(found);
    } else if (body_.size() - begin > kNameMax) {
      close(std::nullopt, State::kText, found);
    }
    return;
  }
  if (!scanner_.push(c)) {
    return;
  }
  const auto json = std::string_view(body_).substr(json_);
  const auto name = std::string_view(body_).substr(begin, json_ - begin);
  close(json[0] == '[' || trimmed(name).empty() ? parse_tool_calls(json) : named_call(name, json),
        State::kText,
        found);
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
  const std::string_view marker = opening(format_);
  std::string_view rest = std::string_view(body_).substr(body_.find(marker) + marker.size());
  rest = past_white(rest);
  if (format_ == ToolFormat::kMistral && json_ > 0 && !rest.starts_with('[') &&
      !rest.starts_with('{')) {
    std::string_view name = rest.substr(0, rest.find('{'));
    name = trimmed(name.substr(0, name.find(kMistralArguments)));
    if (!may_be_a_name(name)) {
      return std::nullopt;
    }
    return std::vector<ToolCall>{
        {.name = std::string(name), .arguments = body_.substr(json_), .whole = false}};
  }
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
