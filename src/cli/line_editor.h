#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

/// A line that somebody types on a terminal, with arrows, Home and End, Ctrl-A, -E, -U, -K and -W,
/// and a history of earlier ones. Takes the bytes that a terminal in raw mode sends; draws nothing.
class LineEditor {
 public:
  enum class Outcome {
    kMore,       ///< The line goes on.
    kDone,       ///< Enter: line() is whole.
    kCancelled,  ///< Ctrl-C: the line was given up.
    kEnd,        ///< Ctrl-D on an empty line.
  };

  /// Begins a line; `history` is lent, the oldest first.
  explicit LineEditor(const std::vector<std::string>& history) : history_(history) {
    at_ = history.size();
  }

  Outcome push(char byte);

  [[nodiscard]] const std::string& line() const { return line_; }
  /// How many characters stand behind the cursor.
  [[nodiscard]] std::size_t behind_cursor() const;

 private:
  Outcome control(char byte);
  void escape(char byte);
  void move_left();
  void move_right();
  void erase_left();
  void erase_word();
  void recall(std::size_t entry);

  const std::vector<std::string>& history_;
  std::size_t at_ = 0;      ///< Of the history what is shown; its size: what is typed.
  std::string typed_{};     ///< While another one is shown.
  std::string line_{};      ///< UTF-8.
  std::size_t cursor_ = 0;  ///< In bytes.
  std::string escape_{};    ///< Of a sequence that has begun.
};

}  // namespace heddle::cli
