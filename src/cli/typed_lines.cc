#include "cli/typed_lines.h"

#include <cstdio>
#include <iostream>

#include "cli/line_editor.h"

#include <termios.h>
#include <unistd.h>

namespace heddle::cli {

namespace {

/// The terminal of stdin in raw mode, for as long as this lives.
class RawTerminal {
 public:
  RawTerminal() {
    raw_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!raw_) {
      return;
    }
    termios raw = before_;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
  }
  ~RawTerminal() {
    if (raw_) {
      (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    }
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  [[nodiscard]] bool works() const { return raw_; }

 private:
  termios before_{};
  bool raw_ = false;
};

/// Draws the line anew, and puts the cursor in its place.
void draw(const std::string& prompt, const LineEditor& editor) {
  std::string text = "\r" + prompt + editor.line() + "\x1b[K";
  if (editor.behind_cursor() > 0) {
    text += "\x1b[" + std::to_string(editor.behind_cursor()) + "D";
  }
  std::fputs(text.c_str(), stderr);
}

}  // namespace

std::optional<std::string> TypedLines::read(const std::string& prompt) {
  const RawTerminal terminal;
  if (!terminal.works()) {
    std::fputs(prompt.c_str(), stderr);
    std::string line;
    return std::getline(std::cin, line) ? std::optional(line) : std::nullopt;
  }
  LineEditor editor(history_);
  draw(prompt, editor);
  for (char byte = 0; ::read(STDIN_FILENO, &byte, 1) == 1;) {
    const LineEditor::Outcome outcome = editor.push(byte);
    draw(prompt, editor);
    if (outcome == LineEditor::Outcome::kMore) {
      continue;
    }
    std::fputs("\r\n", stderr);
    if (outcome == LineEditor::Outcome::kEnd) {
      return std::nullopt;
    }
    if (outcome == LineEditor::Outcome::kDone) {
      if (!editor.line().empty() && (history_.empty() || history_.back() != editor.line())) {
        history_.push_back(editor.line());
      }
      return editor.line();
    }
    return std::string();  // It was given up.
  }
  return std::nullopt;
}

}  // namespace heddle::cli
