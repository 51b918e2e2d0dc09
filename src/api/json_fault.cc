#include "api/json_fault.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "api/error.h"

namespace heddle::api {

namespace {

constexpr std::size_t kPartShownMax = 40;  ///< Bytes of a number or a key that a message repeats.

/// Where a string's next quote or backslash is; the end of the text where there is none.
std::size_t next_mark(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] != '"' && text[at] != '\\') {
    ++at;
  }
  return std::min(at, text.size());
}

bool of_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/// Whether 64 bits hold the number: whole ones as such, others as a double. Too small is as good as
/// 0.
bool fits(const std::string& number) {
  if (number.find_first_of(".eE") != std::string::npos) {
    return std::isfinite(std::strtod(number.c_str(), nullptr));
  }
  std::int64_t with_sign = 0;
  std::uint64_t without = 0;
  const char* end = number.data() + number.size();
  return std::from_chars(number.data(), end, with_sign).ec != std::errc::result_out_of_range ||
         std::from_chars(number.data(), end, without).ec == std::errc();
}

/// Walks over a text until it meets the fault. Each step says whether there was none.
class Walk {
 public:
  Walk(std::string_view text, std::size_t depth) : text_(text), depth_(depth) {}

  JsonFault run() {
    (void)value();  // What it found is in message_ and path_.
    std::string path;
    for (const std::string& step : path_) {
      path += path.empty() || step.starts_with('[') ? step : "." + step;
    }
    return {.path = std::move(path), .message = std::move(message_)};
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (peek() != c) {
      return false;
    }
    ++at_;
    return true;
  }

  bool value() {
    skip_space();
    if (peek() == '{' || peek() == '[') {
      if (path_.size() >= depth_) {
        return false;
      }
      return peek() == '{' ? object() : list();
    }
    return peek() == '"' ? string() : word();
  }

  bool object() {
    ++at_;
    if (take('}')) {
      return true;
    }
    do {
      skip_space();
      const std::size_t begin = at_;
      if (peek() != '"' || !string()) {
        return false;
      }
      path_.emplace_back(shorten(text_.substr(begin + 1, at_ - begin - 2), kPartShownMax));
      if (!take(':') || !value()) {
        return false;
      }
      path_.pop_back();
    } while (take(','));
    return take('}');
  }

  bool list() {
    ++at_;
    if (take(']')) {
      return true;
    }
    std::size_t index = 0;
    do {
      path_.push_back("[" + std::to_string(index++) + "]");
      if (!value()) {
        return false;
      }
      path_.pop_back();
    } while (take(','));
    return take(']');
  }

  /// A number, true, false or null.
  bool word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && of_number(text_[at_])) {
      ++at_;
    }
    if (at_ == begin) {
      while (peek() >= 'a' && peek() <= 'z') {
        ++at_;
      }
      const std::string_view word = text_.substr(begin, at_ - begin);
      return word == "true" || word == "false" || word == "null";
    }
    const std::string number(text_.substr(begin, at_ - begin));
    if (fits(number)) {
      return true;
    }
    message_ = "is " + std::string(shorten(number, kPartShownMax)) +
               (number.size() > kPartShownMax ? "..." : "") +
               ", which 64 bits do not hold; want a smaller number";
    return false;
  }

  bool string() {
    ++at_;
    for (;;) {
      at_ = next_mark(text_, at_);
      if (at_ == text_.size()) {
        return false;
      }
      if (text_[at_] == '"') {
        ++at_;
        return true;
      }
      if (!escape()) {
        return false;
      }
    }
  }

  /// The four digits of `\uXXXX` at the walk's place, which it leaves behind.
  std::optional<unsigned> unit() {
    unsigned code = 0;
    if (text_.substr(at_, 2) != "\\u" || at_ + 6 > text_.size()) {
      return std::nullopt;
    }
    const char* digits = text_.data() + at_ + 2;
    const auto [end, failure] = std::from_chars(digits, digits + 4, code, 16);
    if (failure != std::errc() || end != digits + 4) {
      return std::nullopt;
    }
    at_ += 6;
    return code;
  }

  bool escape() {
    const std::size_t begin = at_;
    constexpr std::string_view kSingle = "\"\\/bfnrt";
    if (at_ + 1 < text_.size() && kSingle.find(text_[at_ + 1]) != std::string_view::npos) {
      at_ += 2;
      return true;
    }
    const std::optional<unsigned> first = unit();
    if (!first) {
      message_ = "has a backslash that begins no escape of JSON; want it doubled";
      return false;
    }
    if (*first < 0xD800 || *first > 0xDFFF) {
      return true;
    }
    const std::optional<unsigned> second = *first < 0xDC00 ? unit() : std::nullopt;
    if (second && *second >= 0xDC00 && *second <= 0xDFFF) {
      return true;
    }
    message_ = "has " + std::string(text_.substr(begin, 6)) +
               ", one half of a surrogate pair; want both halves, or the character itself";
    return false;
  }

  std::string_view text_;
  std::size_t depth_;
  std::size_t at_ = 0;
  std::vector<std::string> path_{};  ///< Keys, and places in lists as "[0]".
  std::string message_{};
};

}  // namespace

JsonFault find_json_fault(std::string_view text, std::size_t depth) {
  return Walk(text, depth).run();
}

JsonCount count_json(std::string_view text) {
  JsonCount count;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    count.commas += c == ',' ? 1 : 0;
    count.parts += c == '{' || c == '[' || c == '"' ? 1 : 0;
    if (c == '"') {
      at = next_mark(text, at + 1);
      while (at < text.size() && text[at] == '\\') {
        at = next_mark(text, at + 2);
      }
    }
  }
  return count;
}

}  // namespace heddle::api
