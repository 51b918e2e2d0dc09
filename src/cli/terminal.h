#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::cli {

/// Lines of text with columns as wide as they need; the first row is the head.
[[nodiscard]] std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// The text's first characters, as many as these columns take, wide characters aside.
[[nodiscard]] std::string cut_to_width(const std::string& text, std::size_t columns);

/// `[#########.............]  41 %`, for `progress` from 0 to 1.
[[nodiscard]] std::string format_bar(double progress);

/// Draws a bar over the current line of stderr, or clears it. Only for terminals.
void show_bar(const std::string& label, std::optional<double> progress);

[[nodiscard]] bool stdin_is_terminal();
[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();

/// Text from elsewhere, with control characters made harmless for a terminal.
[[nodiscard]] std::string printable(const std::string& text);

/// Writes "heddle: <message>" to stderr. Returns 1, the exit status of a failed verb.
int fail(const Error& error);

}  // namespace heddle::cli
