#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The candidate that `word` was probably meant to be: the first of those with the least
/// Levenshtein distance, or empty where that is more than two and than a third of the word.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string_view>& candidates);

}  // namespace heddle
