#include "config/command_line.h"

namespace heddle::config {

namespace {

constexpr std::string_view kBlanks = " \t\r";

/// The next line of `rest`, which loses it and its end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// `text` as one line of shell: no comments, and a backslash at the end of a line, blanks behind it
/// or not, goes on in the next.
std::string unfolded(std::string_view text) {
  std::string whole;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    const std::string_view words = trimmed(line);
    if (words.starts_with('#')) {
      continue;
    }
    if (words.ends_with('\\')) {
      whole += words.substr(0, words.size() - 1);
      whole += ' ';
    } else {
      whole += line;
      whole += '\n';
    }
  }
  return whole;
}

/// Takes a shell's words from a line.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  Result<std::vector<std::string>> run() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        if (!quoted(c)) {
          return Error{.code = Code::kInvalidArgument,
                       .message = std::string("the quote ") + c + " is not closed"};
        }
      } else if (c == '\\' && at_ + 1 < text_.size()) {
        add(text_[++at_]);
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        end_word();
      } else {
        add(c);
      }
    }
    end_word();
    if (words_.empty()) {
      return Error{.code = Code::kInvalidArgument, .message = "is empty; want a command line"};
    }
    return std::move(words_);
  }

 private:
  /// What stands between two of `quote`, the first of which is here; ends at the second.
  bool quoted(char quote) {
    inside_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      const bool escaped =
          quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() &&
          (text_[at_ + 1] == '"' || text_[at_ + 1] == '\\' || text_[at_ + 1] == '$');
      add(text_[escaped ? ++at_ : at_]);
    }
    return at_ < text_.size();
  }
  void add(char c) {
    inside_ = true;
    word_ += c;
  }
  void end_word() {
    if (inside_) {
      words_.push_back(std::move(word_));
    }
    word_.clear();
    inside_ = false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string word_{};
  bool inside_ = false;  ///< Of a word, which may be empty: ''.
  std::vector<std::string> words_{};
};

bool plain(std::string_view word) {
  constexpr std::string_view kSpecial = " \t\r\n'\"\\$`&|;<>()*?[]#~{}!";
  return !word.empty() && word.find_first_of(kSpecial) == std::string_view::npos;
}

}  // namespace

Result<std::vector<std::string>> split_command(std::string_view text) {
  const std::string line = unfolded(text);
  return Splitter(line).run();
}

std::string join_command(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    line += line.empty() ? "" : " ";
    if (plain(word)) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    line += '\'';
  }
  return line;
}

std::string without_comments(std::string_view text) {
  std::string kept;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    if (!trimmed(line).starts_with('#')) {
      kept += line;
      kept += '\n';
    }
  }
  return kept;
}

}  // namespace heddle::config
