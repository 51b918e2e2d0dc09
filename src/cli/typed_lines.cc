#include "cli/typed_lines.h"

#include <cstdio>
#include <iostream>

#include "cli/line_editor.h"
#include "cli/raw_terminal.h"

#include <unistd.h>

namespace heddle::cli {

namespace {

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
