#include "cli/line_editor.h"

#include <algorithm>

namespace heddle::cli {

namespace {

constexpr char kEscape = '\x1b';
constexpr char kDelete = '\x7f';

constexpr char control_key(char letter) {
  return static_cast<char>(letter - '@');
}

/// Whether a byte goes on with a character of UTF-8.
bool goes_on(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

}  // namespace

std::size_t LineEditor::behind_cursor() const {
  return static_cast<std::size_t>(std::count_if(
      line_.begin() + static_cast<std::ptrdiff_t>(cursor_), line_.end(), [](char byte) {
        return !goes_on(byte);
      }));
}

void LineEditor::move_left() {
  while (cursor_ > 0 && goes_on(line_[--cursor_])) {
  }
}

void LineEditor::move_right() {
  while (cursor_ < line_.size() && ++cursor_ < line_.size() && goes_on(line_[cursor_])) {
  }
}

void LineEditor::erase_left() {
  const std::size_t end = cursor_;
  move_left();
  line_.erase(cursor_, end - cursor_);
}

void LineEditor::erase_word() {
  const std::size_t end = cursor_;
  while (cursor_ > 0 && line_[cursor_ - 1] == ' ') {
    --cursor_;
  }
  while (cursor_ > 0 && line_[cursor_ - 1] != ' ') {
    --cursor_;
  }
  line_.erase(cursor_, end - cursor_);
}

void LineEditor::recall(std::size_t entry) {
  if (entry > history_.size()) {
    return;
  }
  if (at_ == history_.size()) {
    typed_ = line_;
  }
  at_ = entry;
  line_ = entry == history_.size() ? typed_ : history_[entry];
  cursor_ = line_.size();
}

/// A sequence such as ESC [ A, or ESC [ 3 ~.
void LineEditor::escape(char byte) {
  escape_ += byte;
  const bool introduced = escape_.size() == 2 && (byte == '[' || byte == 'O');
  const bool whole = escape_.size() > 1 && !introduced && byte >= '@' && byte <= '~';
  if (!whole) {
    return;
  }
  const std::string_view sequence = std::string_view(escape_).substr(2);
  if (sequence == "A" && at_ > 0) {
    recall(at_ - 1);
  } else if (sequence == "B") {
    recall(at_ + 1);
  } else if (sequence == "C") {
    move_right();
  } else if (sequence == "D") {
    move_left();
  } else if (sequence == "H" || sequence == "1~" || sequence == "7~") {
    cursor_ = 0;
  } else if (sequence == "F" || sequence == "4~" || sequence == "8~") {
    cursor_ = line_.size();
  } else if (sequence == "3~" && cursor_ < line_.size()) {
    move_right();
    erase_left();
  }
  escape_.clear();
}

LineEditor::Outcome LineEditor::control(char byte) {
  switch (byte) {
    case '\r':
    case '\n':
      return Outcome::kDone;
    case control_key('C'):
      line_.clear();
      cursor_ = 0;
      return Outcome::kCancelled;
    case control_key('D'):
      if (line_.empty()) {
        return Outcome::kEnd;
      }
      break;
    case control_key('A'):
      cursor_ = 0;
      break;
    case control_key('E'):
      cursor_ = line_.size();
      break;
    case control_key('B'):
      move_left();
      break;
    case control_key('F'):
      move_right();
      break;
    case control_key('U'):
      line_.erase(0, cursor_);
      cursor_ = 0;
      break;
    case control_key('K'):
      line_.erase(cursor_);
      break;
    case control_key('W'):
      erase_word();
      break;
    case control_key('P'):
      recall(at_ > 0 ? at_ - 1 : at_);
      break;
    case control_key('N'):
      recall(at_ + 1);
      break;
    case kDelete:
    case control_key('H'):
      erase_left();
      break;
    default:
      break;
  }
  return Outcome::kMore;
}

LineEditor::Outcome LineEditor::push(char byte) {
  if (!escape_.empty() || byte == kEscape) {
    escape(byte);
    return Outcome::kMore;
  }
  const auto code = static_cast<unsigned char>(byte);
  if (code < 0x20 && byte != '\t') {
    return control(byte);
  }
  if (byte == kDelete) {
    return control(byte);
  }
  line_.insert(cursor_, 1, byte);
  ++cursor_;
  return Outcome::kMore;
}

}  // namespace heddle::cli
