#include "api/object_text.h"

#include <algorithm>

#include "spec/json_writer.h"

#include <simdjson.h>

namespace heddle::api {

namespace {

constexpr std::size_t kMembersMax = 4096;

bool is_mark(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == '"';
}

/// Whether `c` ends a number or a word, where no bracket does.
bool ends_word(char c) {
  return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// Walks over JSON text by its brackets and quotes.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  /// Takes `c` where it comes next.
  bool take(char c) {
    if (ended() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }

  /// Takes a string, quotes included.
  bool take_string() {
    if (!take('"')) {
      return false;
    }
    std::size_t quote = text_.find('"', at_);
    while (quote != std::string_view::npos) {
      const std::size_t escape = text_.substr(0, quote).find('\\', at_);
      if (escape == std::string_view::npos) {
        at_ = quote + 1;
        return true;
      }
      at_ = escape + 2;
      if (at_ > quote) {
        quote = text_.find('"', at_);
      }
    }
    at_ = text_.size();
    return false;
  }

  /// Takes a value of any kind.
  bool take_value() {
    if (!ended() && text_[at_] == '"') {
      return take_string();
    }
    const std::size_t begin = at_;
    for (std::size_t depth = 0; !ended();) {
      while (!ended() && !is_mark(text_[at_]) && (depth > 0 || !ends_word(text_[at_]))) {
        ++at_;
      }
      if (ended()) {
        break;
      }
      const char c = text_[at_];
      if (c == '"') {
        if (depth == 0 || !take_string()) {
          return false;
        }
      } else if (c == '{' || c == '[') {
        if (depth == 0 && at_ != begin) {
          return false;
        }
        ++depth;
        ++at_;
      } else if (depth == 0) {
        break;  // A number or a word has ended.
      } else {
        ++at_;
        if (--depth == 0) {
          break;
        }
      }
    }
    return at_ > begin;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// A JSON string, quotes included, as what it says; nothing where it is not valid.
std::optional<std::string> unescape(std::string_view quoted) {
  if (quoted.find('\\') == std::string_view::npos) {
    return std::string(quoted.substr(1, quoted.size() - 2));
  }
  simdjson::dom::parser parser;
  std::string_view text;
  if (parser.parse(std::string(quoted)).get_string().get(text) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return std::string(text);
}

Error no_object(std::size_t offset) {
  return {.code = Code::kInvalidArgument,
          .message =
              "the body is no JSON object: it stops being one at byte " + std::to_string(offset)};
}

}  // namespace

Result<ObjectText> ObjectText::scan(std::string_view text) {
  ObjectText object(text);
  Scanner scan(text);
  scan.skip_space();
  bool more = scan.take('{');
  if (!more) {
    return no_object(scan.at());
  }
  scan.skip_space();
  if (scan.take('}')) {
    more = false;
  }
  while (more) {
    scan.skip_space();
    Member member{.key_begin = scan.at()};
    if (!scan.take_string()) {
      return no_object(member.key_begin);
    }
    std::optional<std::string> key =
        unescape(text.substr(member.key_begin, scan.at() - member.key_begin));
    scan.skip_space();
    if (!key || !scan.take(':')) {
      return no_object(scan.at());
    }
    scan.skip_space();
    member.key = std::move(*key);
    member.value_begin = scan.at();
    if (!scan.take_value()) {
      return no_object(scan.at());
    }
    member.value_end = scan.at();
    if (object.members_.size() == kMembersMax) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "the body has more than " + std::to_string(kMembersMax) +
                              " fields; want at most so many"};
    }
    object.members_.push_back(std::move(member));
    scan.skip_space();
    more = scan.take(',');
    if (!more && !scan.take('}')) {
      return no_object(scan.at());
    }
  }
  object.close_ = scan.at() - 1;
  scan.skip_space();
  if (!scan.ended()) {
    return no_object(scan.at());
  }
  return object;
}

std::optional<std::string_view> ObjectText::find(std::string_view key) const {
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    if (member->key == key) {
      return text_.substr(member->value_begin, member->value_end - member->value_begin);
    }
  }
  return std::nullopt;
}

std::optional<std::string> ObjectText::string(std::string_view key) const {
  const std::optional<std::string_view> value = find(key);
  if (!value || value->front() != '"') {
    return std::nullopt;
  }
  return unescape(*value);
}

std::string ObjectText::edited(const std::vector<std::string>& strip,
                               const std::vector<std::pair<std::string, std::string>>& set) const {
  const std::size_t begin = members_.empty() ? close_ : members_.front().key_begin;
  const std::size_t end = members_.empty() ? close_ : members_.back().value_end;
  std::string result(text_.substr(0, begin));
  bool any = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const auto value = std::find_if(
        set.begin(), set.end(), [&](const auto& wanted) { return wanted.first == member.key; });
    if (value == set.end() && std::find(strip.begin(), strip.end(), member.key) != strip.end()) {
      continue;
    }
    if (any) {  // What stands between it and the one before it.
      const std::size_t before = members_[i - 1].value_end;
      result += text_.substr(before, member.key_begin - before);
    }
    if (value == set.end()) {
      result += text_.substr(member.key_begin, member.value_end - member.key_begin);
    } else {
      result += text_.substr(member.key_begin, member.value_begin - member.key_begin);
      result += value->second;
    }
    any = true;
  }
  for (const auto& [key, value] : set) {
    const bool there = std::any_of(
        members_.begin(), members_.end(), [&](const Member& member) { return member.key == key; });
    if (!there) {
      spec::JsonWriter name;
      name.string(key);
      result += (any ? "," : "") + name.text() + ":" + value;
      any = true;
    }
  }
  result += text_.substr(end);
  return result;
}

}  // namespace heddle::api
