#include "text/call_json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "spec/json_string_reader.h"
#include "text/white_space.h"

namespace heddle::text {
namespace {

constexpr int kDepthMax = 100;  // Of brackets: the parser keeps a stack.

/// The parser takes a zero byte for the end, whatever stands behind it.
bool is_json(std::string_view text) {
  return text.find('\0') == std::string_view::npos && JsonScanner::depth(text) <= kDepthMax &&
         nlohmann::json::accept(text);
}

bool is_arguments(std::string_view key) {
  return key == "arguments" || key == "parameters";
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

/// Takes an object or a list that `text` begins with; nothing where it is not whole.
std::optional<std::string_view> take_brackets(std::string_view& text) {
  JsonScanner scanner;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (scanner.push(text[at])) {
      const std::string_view taken = text.substr(0, at + 1);
      text.remove_prefix(at + 1);
      return taken;
    }
  }
  return std::nullopt;
}

/// Takes a value of any kind, and white space before it; nothing where it is not whole.
std::optional<std::string_view> take_value(std::string_view& text) {
  text = past_white(text);
  if (text.starts_with('{') || text.starts_with('[')) {
    return take_brackets(text);
  }
  const std::string_view all = text;
  std::size_t size = 0;
  if (text.starts_with('"')) {
    const std::optional<std::string_view> inside = take_string(text);
    size = inside ? inside->size() + 2 : std::string_view::npos;
  } else {
    size = text.find_first_of(" \t\r\n,]}");
  }
  if (size == std::string_view::npos) {
    return std::nullopt;
  }
  text = all.substr(size);
  return all.substr(0, size);
}

struct Member {
  std::string_view key{};
  std::string_view value{};
};

/// Those of an object that is well formed.
std::vector<Member> members(std::string_view object) {
  std::vector<Member> all;
  for (bool more = take("{", object); more; more = take(",", object)) {
    object = past_white(object);
    const std::optional<std::string_view> key = take_string(object);
    if (!key || !take(":", object)) {
      break;
    }
    const std::optional<std::string_view> value = take_value(object);
    if (!value) {
      break;
    }
    all.push_back({.key = *key, .value = *value});
  }
  return all;
}

/// The text of a value that is a string.
std::optional<std::string> text_of(std::string_view value) {
  return value.starts_with('"') ? std::optional(spec::json_string_text(value.substr(1)))
                                : std::nullopt;
}

/// The first member called `name`, as a text.
std::optional<std::string> name_of(const std::vector<Member>& all) {
  const auto name =
      std::ranges::find_if(all, [](const Member& member) { return member.key == "name"; });
  return name == all.end() ? std::nullopt : text_of(name->value);
}

/// Of an object that is well formed.
std::optional<ToolCall> call_of(std::string_view object) {
  const std::vector<Member> all = members(object);
  const std::optional<std::string> name = name_of(all);
  if (!name || name->empty()) {
    return std::nullopt;
  }
  ToolCall call{.name = *name, .arguments = "{}"};
  const auto arguments = std::ranges::find_if(
      all, [](const Member& member) { return is_arguments(member.key) && member.value != "null"; });
  if (arguments == all.end()) {
    return call;
  }
  // Some models write the object as a string, as OpenAI's API does.
  const std::string object_text = text_of(arguments->value).value_or(std::string(arguments->value));
  if (!is_json_object(object_text)) {
    return std::nullopt;
  }
  call.arguments = dense_json(object_text);
  return call;
}

/// Whether `json` is the beginning of `{"name": "`, or of the same with a type before it.
bool begins_a_name(std::string_view json) {
  const std::string dense = dense_json(json);
  for (const std::string_view head : {R"({"name":")", R"({"type":"function","name":")"}) {
    if (head.starts_with(dense) || dense.starts_with(head)) {
      return true;
    }
  }
  return false;
}

/// Sets the arguments of a call to the beginning of an object, or of one that is written as a
/// string; false where it is neither.
bool begin_arguments(std::string_view json, ToolCall& call) {
  const std::string text = text_of(json).value_or(std::string(json));
  std::string_view object = past_white(text);
  if (!object.empty() && object.front() != '{') {
    return false;
  }
  const std::optional<std::string_view> whole = take_brackets(object);
  call.arguments = dense_json(whole.value_or(object));
  call.whole = whole.has_value();
  return true;
}

/// Whether `text` may be the beginning of the key of a call's arguments, or of none.
bool begins_arguments_key(std::string_view text) {
  const std::string_view begun = text.substr(std::min<std::size_t>(1, text.size()));
  return (text.empty() || text.front() == '"') &&
         (std::string_view("arguments").starts_with(begun) ||
          std::string_view("parameters").starts_with(begun));
}

}  // namespace

std::string dense_json(std::string_view json) {
  std::string dense;
  JsonScanner scanner;
  for (const char c : json) {
    if (scanner.in_string() || !is_white(c)) {
      dense += c;
    }
    scanner.push(c);
  }
  return dense;
}

bool is_json_object(std::string_view json) {
  return past_white(json).starts_with('{') && is_json(json);
}

std::optional<std::vector<ToolCall>> parse_tool_calls(std::string_view json) {
  json = past_white(json);
  if (!(json.starts_with('{') || json.starts_with('[')) || !is_json(json)) {
    return std::nullopt;
  }
  std::vector<std::string_view> objects;
  if (json.starts_with('{')) {
    objects.push_back(json);
  } else {
    for (bool more = take("[", json); more; more = take(",", json)) {
      objects.push_back(take_value(json).value_or(""));
    }
  }
  std::vector<ToolCall> calls;
  for (const std::string_view object : objects) {
    std::optional<ToolCall> call = call_of(object);
    if (!call) {
      return std::nullopt;
    }
    calls.push_back(*std::move(call));
  }
  return calls;
}

std::optional<ToolCall> begun_call(std::string_view json) {
  ToolCall call{.whole = false};
  // One of which not even the name is there.
  const auto nameless = [json] {
    return begins_a_name(json) ? std::optional(ToolCall{.whole = false}) : std::nullopt;
  };
  std::string_view rest = json;
  if (!take("{", rest)) {
    return nameless();
  }
  do {
    rest = past_white(rest);
    const std::string_view begun = rest;
    const std::optional<std::string_view> key = take_string(rest);
    const bool named = !call.name.empty();
    if (!key) {
      return !named ? nameless() : begins_arguments_key(begun) ? std::optional(call) : std::nullopt;
    }
    const bool value = take(":", rest);
    if (named && is_arguments(*key)) {
      return begin_arguments(past_white(rest), call) ? std::optional(call) : std::nullopt;
    }
    const std::optional<std::string_view> taken = value ? take_value(rest) : std::nullopt;
    if (!taken) {
      return named ? std::nullopt : nameless();
    }
    if (*key == "name" && !named) {
      call.name = text_of(*taken).value_or("");
    }
  } while (take(",", rest));
  if (!past_white(rest).empty()) {
    return std::nullopt;
  }
  return call.name.empty() ? nameless() : std::optional(call);
}

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
    std::optional<ToolCall> call;
    if (const std::optional<std::string_view> object = take_brackets(json)) {
      call = is_json(*object) ? call_of(*object) : std::nullopt;
    } else {
      call = begun_call(std::exchange(json, {}));
    }
    if (!call) {
      return std::nullopt;
    }
    calls.push_back(*std::move(call));
  }
  return calls;
}

std::optional<std::string> name_before_arguments(std::string_view json) {
  const bool quoted = json.ends_with("\"{");
  const std::string closed = std::string(json) + (quoted ? "}\"}" : "}}");
  if (!is_json_object(closed)) {
    return std::nullopt;
  }
  const std::vector<Member> all = members(closed);
  const auto first = std::ranges::find_if(
      all, [](const Member& member) { return is_arguments(member.key) && member.value != "null"; });
  const std::string_view begun = quoted ? "\"{}\"" : "{}";
  if (first == all.end() || std::next(first) != all.end() || first->value != begun) {
    return std::nullopt;
  }
  std::optional<std::string> name = name_of(all);
  return name && !name->empty() ? name : std::nullopt;
}

void ArgumentPieces::begin(std::string name, std::vector<ToolCall>& calls) {
  calls.push_back({.name = std::move(name), .arguments = "{", .whole = false});
  scanner_ = {};
  scanner_.push('{');
}

bool ArgumentPieces::push(char c, std::vector<ToolCall>& calls) {
  if (!scanner_.in_string() && is_white(c)) {
    return false;
  }
  if (calls.empty()) {
    calls.push_back({.whole = false, .continues = true});
  }
  calls.back().arguments += c;
  calls.back().whole = scanner_.push(c);
  return calls.back().whole;
}

}  // namespace heddle::text
