#include "cli/terminal.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

namespace heddle::cli {

namespace {

constexpr std::size_t kBarWidth = 30;

/// Whether a byte of UTF-8 is a character's first.
bool begins(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

/// Columns that UTF-8 text takes, wide characters aside.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

}  // namespace

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width(row[i]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string cut_to_width(const std::string& text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t taken = 0; end < text.size(); ++end) {
    taken += begins(text[end]) ? 1 : 0;
    if (taken > columns) {
      break;
    }
  }
  return text.substr(0, end);
}

std::string format_bar(double progress) {
  const double part = std::clamp(progress, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(part * static_cast<double>(kBarWidth));
  const std::string percent = std::to_string(static_cast<int>(part * 100));
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] " +
         std::string(3 - percent.size(), ' ') + percent + " %";
}

void show_bar(const std::string& label, std::optional<double> progress) {
  std::string line = "\r\x1b[K";
  if (progress) {
    line += label + " " + format_bar(*progress);
  }
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

bool stdin_is_terminal() {
  return isatty(STDIN_FILENO) == 1;
}
bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

std::string printable(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    safe += (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F ? '?' : c;
  }
  return safe;
}

int fail(const Error& error) {
  std::fprintf(stderr, "heddle: %s\n", printable(error.message).c_str());
  return 1;
}

}  // namespace heddle::cli
