#pragma once

#include <optional>
#include <string>
#include <vector>

namespace heddle::cli {

/// Lines from a terminal, edited while they are typed, with those before. One thread.
class TypedLines {
 public:
  /// Shows `prompt` on stderr and reads a line, without its end; nothing at the end of input.
  /// Ctrl-C gives a line up and begins anew. Empty lines are not remembered.
  std::optional<std::string> read(const std::string& prompt);

 private:
  std::vector<std::string> history_{};
};

}  // namespace heddle::cli
