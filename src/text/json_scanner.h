#pragma once

#include <algorithm>
#include <string_view>

namespace heddle::text {

/// Finds the end of one JSON object or array, a character at a time. It counts brackets outside of
/// strings and checks nothing else. Owned by one thread.
class JsonScanner {
 public:
  /// Takes the next character; true when it closes the value. The first must be '{' or '['.
  bool push(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      return false;
    }
    switch (c) {
      case '"':
        in_string_ = true;
        return false;
      case '{':
      case '[':
        deepest_ = std::max(deepest_, ++depth_);
        return false;
      case '}':
      case ']':
        return --depth_ <= 0;
      default:
        return false;
    }
  }

  /// Whether what comes next is within a string.
  [[nodiscard]] bool in_string() const { return in_string_; }

  /// The deepest nesting of brackets in `text`.
  [[nodiscard]] static int depth(std::string_view text) {
    JsonScanner scanner;
    for (const char c : text) {
      scanner.push(c);
    }
    return scanner.deepest_;
  }

 private:
  int depth_ = 0;
  int deepest_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace heddle::text
