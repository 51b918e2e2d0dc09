#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace heddle::config {

/// Splits a command line into words as a POSIX shell does: blanks and line ends between words,
/// quotes, and backslashes before single characters and line ends. Lines that start with '#' are
/// left out. Nothing is expanded. kInvalidArgument for a quote that is not closed, or no word.
Result<std::vector<std::string>> split_command(std::string_view text);

/// The inverse, for people: words are quoted where a shell would need it.
[[nodiscard]] std::string join_command(const std::vector<std::string>& words);

/// `text` without its lines that start with '#'.
[[nodiscard]] std::string without_comments(std::string_view text);

}  // namespace heddle::config
