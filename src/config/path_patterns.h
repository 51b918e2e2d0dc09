#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "config/fields.h"

namespace heddle::config {

/// Regular expressions of paths. ECMAScript's, which agrees with RE2 but for flags and a few
/// classes; a "(?i)" at the start is taken.
class PathPatterns {
 public:
  /// kInvalidArgument, with the expression, for what is none or has more than 256 bytes.
  static Result<PathPatterns> parse(const std::vector<std::string>& patterns);

  /// Whether any of them is found in the path. Of one with more than 1024 bytes none is.
  [[nodiscard]] bool match(std::string_view path) const;

 private:
  std::vector<std::regex> patterns_{};
};

/// The key `upstream`.
void declare_upstream(Fields& fields, Config& config);

}  // namespace heddle::config
